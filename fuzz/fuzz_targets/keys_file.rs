//! A file of Redis, as a node reads it at its first start.

#![no_main]

use libfuzzer_sys::fuzz_target;
use savanna_keys::actor::Actor;
use savanna_keys::actor::loading::{Check, Loading};
use savanna_keys::config::Config;
use savanna_keys::placement::{ActorId, Routes};
use savanna_keys_rdb::{FileReader, Item};
use savanna_lattice::UnixMillis;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = FileReader::new(bytes) else { return };
    let mut actors = [Actor::new(ActorId(0), Routes::over(1), Config::default(), 0)];
    actors[0].keep_changes();
    let (check, mut loading) = (Check::default(), Loading::new(&mut actors, UnixMillis(1)));
    // Libraries are Lua, which takes as long as it likes.
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Key(entry) = item {
            let is_fine = check.key(entry.database, &entry.payload).is_ok();
            let is_taken = loading.key(entry.database, &entry.key, entry.expires_at, &entry.payload).is_ok();
            assert_eq!(is_taken, is_fine, "what was found fine is taken, and nothing else");
        }
    }
    assert!(reader.position() <= bytes.len() as u64);
    loading.end();
});
