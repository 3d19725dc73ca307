//! What looks after files has turns.

use std::sync::atomic::Ordering;

use super::*;
use crate::upkeep::Task;

const MANY: usize = 3_000;

impl Running {
    /// Somebody reads, and the one who looks after files waits to change something. What there is then.
    fn held_up<T>(&self, meanwhile: impl FnOnce(usize) -> T) -> T {
        let state = self.files.0.state.read();
        until(|| self.files.0.state.try_read().is_none());
        meanwhile(state.namespace.tree().len())
    }

    /// A large directory is deleted, and replicas go when it is about to be taken apart: how much was left of it before, and when they went.
    fn delete_much(&self) -> (usize, usize) {
        for number in 0..MANY {
            let request = Request::Mkdirs { path: format!("/d/{number}"), mode: 0o755.into(), with_parents: true };
            self.call(&request).unwrap();
        }
        // Just behind a turn.
        self.held_up(drop);
        self.delete("/d");
        let before = self.held_up(|left| {
            self.files.0.tasks.send(Task::Remove(vec![BlockId(1)])).unwrap();
            left
        });
        until(|| self.files.0.state.read().namespace.tree().len() < 100);
        (before, self.files.0.state.at_removal.load(Ordering::Relaxed))
    }
}

#[test]
fn a_large_delete_holds_up_nothing_else() {
    let (disk, folder) = (SimDisk::new(3), tempfile::tempdir().unwrap());
    let running = opened(&disk, folder.path(), 1);
    let much = (0..20).map(|_| running.delete_much()).find(|(before, _)| *before > MANY / 2);
    let (before, at_removal) = much.expect("one that is not taken apart before anybody looks");
    assert!(at_removal > before - 3 * 256, "{at_removal} were left of {before} when a replica was removed");
    running.stop();
}
