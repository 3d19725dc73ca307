//! The contention experiment of Anna (C. Wu, *The Design of Any-scale Serverless Infrastructure with Rich Consistency Guarantees*,
//! section 2.6: updates only, no network): how much a popular key costs threads that share a map, and threads that share nothing.
//!
//! Keys of 8 bytes, drawn from a Zipf distribution, get values of 1 KB. One run is one variant; it prints one JSON object.
//! `bench/keys/contention.py` runs the variants in turns and counts instructions.
//!
//! ```text
//! cargo bench -p savanna-keys --bench contention -- [--variant NAME] [--threads 2] [--zipf 4] [--keys 1000000]
//!     [--operations 2000000] [--value-bytes 1024]
//! ```

mod actors;
mod maps;
mod workload;

use serde_json::json;

use self::workload::{Spent, Workload};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Run = fn(&Workload) -> Spent;

/// What can hold the keys, from the upper limit on.
const VARIANTS: [(&str, Run); 8] = [
    ("unsynchronised", maps::unsynchronised),
    ("keyspace", maps::keyspace),
    ("actors, 1 replica", |workload| actors::run(workload, 1)),
    ("actors, 2 replicas", |workload| actors::run(workload, 2)),
    ("actors, full", |workload| actors::run(workload, workload.threads as u16)),
    ("sharded mutex", maps::sharded_mutex),
    ("dashmap", maps::dashmap),
    ("papaya", maps::papaya),
];

fn main() {
    let mut workload = Workload { threads: 2, zipf: 4.0, keys: 1_000_000, operations: 2_000_000, value_bytes: 1024 };
    let mut wanted = String::new();
    // Cargo adds a flag of its own.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(option) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("expected a value behind {option}"));
        let number =
            || value.parse().unwrap_or_else(|_| panic!("expected a whole number behind {option}, came {value}"));
        match option.as_str() {
            "--variant" => wanted = value,
            "--threads" => workload.threads = number(),
            "--zipf" => workload.zipf = value.parse().expect("a number behind --zipf"),
            "--keys" => workload.keys = number(),
            "--operations" => workload.operations = number(),
            "--value-bytes" => workload.value_bytes = number(),
            _ => panic!("expected --variant, --threads, --zipf, --keys, --operations or --value-bytes, came {option}"),
        }
    }
    let chosen: Vec<_> = VARIANTS.iter().filter(|(name, _)| wanted.is_empty() || *name == wanted).collect();
    assert!(!chosen.is_empty(), "expected one of {:?}, came {wanted}", VARIANTS.map(|(name, _)| name));
    for (name, run) in chosen {
        let spent = run(&workload);
        let operations = workload.operations as f64;
        let figures = json!({
            "variant": name, "threads": workload.threads, "zipf": workload.zipf, "keys": workload.keys,
            "operations": workload.operations, "value_bytes": workload.value_bytes,
            "cpu_ns": spent.cpu.as_secs_f64() * 1e9 / operations,
            "millions_per_second": operations / spent.wall.as_secs_f64() / 1e6,
        });
        println!("{figures}");
    }
}
