//! Flags of this process that are set while something is done, however that ends.

use std::cell::Cell;
use std::thread::LocalKey;

/// Does something while a flag is set.
pub(crate) fn while_set<R>(flag: &'static LocalKey<Cell<bool>>, action: impl FnOnce() -> R) -> R {
    struct Restore(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(flag, flag.replace(true));
    action()
}
