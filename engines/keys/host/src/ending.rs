//! What is done when a client asks for the end of the process (`SHUTDOWN`).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

type Act = Box<dyn FnOnce() + Send>;

/// Who wants to know that a client asks for the end. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    /// Neither has anybody asked, nor does anybody listen.
    #[default]
    Quiet,
    Asked,
    Listens(Act),
}

impl Ending {
    /// Does this when a client asks, once; at once, if one has.
    pub(crate) fn listen(&self, act: Act) {
        let mut state = self.0.lock();
        match &*state {
            State::Asked => act(),
            State::Quiet | State::Listens(_) => *state = State::Listens(act),
        }
    }

    /// A client asks.
    pub(crate) fn ask(&self) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Asked);
        if let State::Listens(act) = before {
            act();
        }
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ending(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn who_listens_hears_once_whether_it_came_before_or_after() {
        let heard = Arc::new(AtomicU32::new(0));
        let act = || -> Act {
            let heard = Arc::clone(&heard);
            Box::new(move || _ = heard.fetch_add(1, Ordering::Relaxed))
        };
        let (late, early) = (Ending::default(), Ending::default());
        late.ask();
        late.listen(act());
        assert_eq!(heard.load(Ordering::Relaxed), 1);
        early.listen(act());
        early.ask();
        early.ask();
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }
}
