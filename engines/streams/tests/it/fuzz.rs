//! The bodies of the fuzz targets over their seeds, and over the seeds with some bytes changed.

use std::fs;
use std::path::PathBuf;

#[expect(unreachable_pub, reason = "the targets call it from another crate")]
#[path = "../../../../fuzz/streams.rs"]
mod streams;

/// How often each seed is changed.
const CHANGES: u64 = 30;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Numbers that look like chance, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Takes a part out, puts one in twice or that of another seed, or changes bytes.
fn changed(seed: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=chance.below(4) {
        let from = chance.below(bytes.len());
        let to = (from + chance.below(20)).min(bytes.len());
        match chance.below(4) {
            0 => drop(bytes.drain(from..to)),
            1 => {
                let twice = bytes[from..to].to_vec();
                bytes.splice(from..from, twice);
            }
            2 => {
                let start = chance.below(other.len());
                let end = (start + chance.below(30)).min(other.len());
                bytes.splice(from..to, other[start..end].iter().copied());
            }
            _ if from < bytes.len() => bytes[from] = chance.below(256) as u8,
            _ => {}
        }
    }
    bytes
}

fn run(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "there are seeds for {target}");
    for (number, (path, seed)) in seeds.iter().enumerate() {
        println!("{}", path.display());
        body(seed);
        for change in 0..CHANGES {
            let mut chance = Chance(number as u64 * CHANGES + change);
            let other = &seeds[chance.below(seeds.len())].1;
            let bytes = changed(seed, other, &mut chance);
            println!("{}", String::from_utf8_lossy(&bytes));
            body(&bytes);
        }
    }
}

#[test]
fn sql_text_is_planned_or_refused() {
    run("streams_sql", streams::sql);
}

#[test]
fn rows_of_each_format_are_read_or_refused() {
    run("streams_rows", streams::rows);
}
