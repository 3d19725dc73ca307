//! Paths of many names, more of them than may be in memory.

use super::*;

const DEPTH: usize = 300;

/// Each operation gives up what the others need, also between what they lack and its answer.
#[test]
fn deep_paths_are_found_while_others_give_them_up() {
    let place = Scene::new();
    let running = place.open(1, 10);
    let path = |number: usize| format!("/{number}{}", "/d".repeat(DEPTH));
    for number in 0..4 {
        running.mkdirs(&path(number));
    }
    running.flushed();
    running.stop();
    let running = place.open(2, 10);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (running, path) = (&running, path(number));
            scope.spawn(move || {
                for depth in 0..20 {
                    let path = &path[..path.len() - 2 * depth];
                    let request = Request::FileInfo { path: path.to_owned() };
                    let answer = running.call(&request);
                    assert!(matches!(answer, Ok(Reply::Status(Some(_)))), "{path}: {answer:?}");
                }
            });
        }
    });
    assert!(running.database().cached < 10 + 4 * DEPTH as u64);
    assert_eq!(running.counted("root", "/"), Ok(0));
    running.stop();
}
