//! How long a script may run, and who ends it before.
//!
//! Everything that a script can do for long looks at its watch: the interpreter every few instructions, the libraries and
//! the commands inside of their loops. A script that is stopped catches nothing any more.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, VmState};

/// Instructions between two looks at the clock, as a rule.
const INSTRUCTIONS: u32 = 2_000;
/// The same of a script that has much memory, whose instructions may take long: comparing two texts of megabytes is one.
const LARGE_INSTRUCTIONS: u32 = 100;
/// The same while single instructions do take long.
const SLOW_INSTRUCTIONS: u32 = 10;
/// So much memory is much.
const LARGE_BYTES: usize = 8 << 20;
/// A look that comes so late says that instructions take long.
const LATE: Duration = Duration::from_millis(10);

/// A script that has run for so long lets others be served now and then, unless it is to do so earlier.
const LONG: Duration = Duration::from_millis(500);
/// How often it does.
const LOOK_UP_PERIOD: Duration = Duration::from_millis(50);

/// The watch over the script that runs on a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Face>);

#[derive(Debug, Default)]
struct Face {
    /// In nanoseconds since [`now`]'s beginning.
    began: AtomicU64,
    limit: AtomicU64,
    /// When it was last looked at.
    looked: AtomicU64,
    /// When others are to be served next.
    look_up_at: AtomicU64,
    /// When others are to hear that the server is busy.
    busy_at: AtomicU64,
    /// Instructions to the next look.
    instructions: AtomicU32,
    /// What serves them.
    look_up: Mutex<Option<Function>>,
    is_stopped: AtomicBool,
    is_function: AtomicBool,
    /// One of the states below. Other threads kill: it changes by exchange.
    state: AtomicU8,
}

/// No script runs.
const IDLE: u8 = 0;
/// A script runs that has changed nothing so far.
const READING: u8 = 1;
/// A script runs that has changed something: it cannot be killed any more.
const WRITING: u8 = 2;
/// A script runs that is to end at its next look.
const KILLED: u8 = 3;

/// What a wish to end a script came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// No script runs.
    Idle,
    /// The one that runs has changed something already.
    HasWritten,
    /// What runs is a function, and a script was meant, or the other way round.
    Other,
    /// The one that runs ends.
    Done,
}

/// Nanoseconds since the first call.
fn now() -> u64 {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Why a script was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped(pub(crate) String);

impl Watch {
    /// Starts for a script that may run for `limit`, and lets others be served after `patience`, if that is not 0.
    pub(crate) fn start(&self, limit: Duration, patience: Duration) {
        let now = now();
        let busy_after = if patience.is_zero() { u64::MAX } else { patience.as_nanos() as u64 };
        self.0.busy_at.store(now.saturating_add(busy_after), Ordering::Relaxed);
        let patience = if patience.is_zero() { LONG } else { patience.min(LONG) };
        self.0.began.store(now, Ordering::Relaxed);
        self.0.looked.store(now, Ordering::Relaxed);
        self.0.limit.store(limit.as_nanos() as u64, Ordering::Relaxed);
        self.0.look_up_at.store(now + patience.as_nanos() as u64, Ordering::Relaxed);
        self.0.is_stopped.store(false, Ordering::Relaxed);
        self.0.state.store(READING, Ordering::Release);
    }

    /// Has `function` called now and then while the script runs for long.
    pub(super) fn let_look_up(&self, function: Function) {
        *self.0.look_up.lock().unwrap_or_else(PoisonError::into_inner) = Some(function);
    }

    fn look_up(&self) {
        let function = self.0.look_up.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(function) = function {
            // It gives nothing, and refuses nothing.
            let _ = function.call::<()>(());
        }
        self.0.look_up_at.store(now() + LOOK_UP_PERIOD.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether others have waited for the script as long as they are to.
    pub(super) fn is_busy(&self) -> bool {
        now() >= self.0.busy_at.load(Ordering::Relaxed)
    }

    /// Says that the script has ended.
    pub(crate) fn end(&self) {
        *self.0.look_up.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.state.store(IDLE, Ordering::Release);
    }

    /// Looks at the clock, and lets others be served if it is time.
    ///
    /// # Errors
    /// If the script has to end, from then on always.
    pub(crate) fn look(&self) -> Result<(), Stopped> {
        let now = now();
        self.0.looked.store(now, Ordering::Relaxed);
        if now >= self.0.look_up_at.load(Ordering::Relaxed) {
            self.look_up();
        }
        let limit = self.0.limit.load(Ordering::Relaxed);
        let is_killed = self.0.state.load(Ordering::Relaxed) == KILLED;
        if !is_killed && now.saturating_sub(self.0.began.load(Ordering::Relaxed)) < limit {
            return Ok(());
        }
        self.0.is_stopped.store(true, Ordering::Relaxed);
        Err(Stopped(if is_killed {
            "Script killed by user with SCRIPT KILL.".to_owned()
        } else {
            let millis = Duration::from_nanos(limit).as_millis();
            format!("Script was stopped: it ran for more than {millis} ms (script-time-limit)")
        }))
    }

    /// What stopped the script, if something did.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        if self.0.is_stopped.load(Ordering::Relaxed) { self.look().err() } else { None }
    }

    /// Notes that the script is about to change something, so that it cannot be killed any more.
    ///
    /// # Errors
    /// If it was killed before.
    pub(crate) fn note_write(&self) -> Result<(), Stopped> {
        let noted = self.0.state.compare_exchange(READING, WRITING, Ordering::AcqRel, Ordering::Acquire);
        if noted == Err(KILLED) { self.look() } else { Ok(()) }
    }

    /// Says whether what runs is a function.
    pub(super) fn note_function(&self, is_function: bool) {
        self.0.is_function.store(is_function, Ordering::Relaxed);
    }

    /// Has the script, or function, end at its next look, if it has changed nothing.
    pub(crate) fn kill(&self, is_function: bool) -> Kill {
        let is_idle = self.0.state.load(Ordering::Acquire) == IDLE;
        if !is_idle && self.0.is_function.load(Ordering::Relaxed) != is_function {
            return Kill::Other;
        }
        match self.0.state.compare_exchange(READING, KILLED, Ordering::AcqRel, Ordering::Acquire) {
            Err(IDLE) => Kill::Idle,
            Err(WRITING) => Kill::HasWritten,
            Ok(_) | Err(_) => Kill::Done,
        }
    }

    /// Has the interpreter look every few instructions.
    pub(super) fn hook(&self, lua: &Lua) -> mlua::Result<()> {
        self.hook_every(lua, INSTRUCTIONS)
    }

    /// Has it look more often, or less, by how long its instructions take.
    pub(super) fn pace(&self, lua: &Lua) -> mlua::Result<()> {
        let since = Duration::from_nanos(now().saturating_sub(self.0.looked.load(Ordering::Relaxed)));
        self.pace_after(since, lua)
    }

    fn pace_after(&self, since: Duration, lua: &Lua) -> mlua::Result<()> {
        let wanted = match () {
            () if since > LATE => SLOW_INSTRUCTIONS,
            () if lua.used_memory() > LARGE_BYTES => LARGE_INSTRUCTIONS,
            () => INSTRUCTIONS,
        };
        if wanted == self.0.instructions.load(Ordering::Relaxed) { Ok(()) } else { self.hook_every(lua, wanted) }
    }

    fn hook_every(&self, lua: &Lua, instructions: u32) -> mlua::Result<()> {
        self.0.instructions.store(instructions, Ordering::Relaxed);
        let watch = self.clone();
        lua.set_hook(HookTriggers::new().every_nth_instruction(instructions), move |lua, _| {
            let looked = watch.0.looked.load(Ordering::Relaxed);
            let since = Duration::from_nanos(now().saturating_sub(looked));
            watch.look()?;
            watch.pace_after(since, lua)?;
            Ok(VmState::Continue)
        })
    }
}

/// Looks at the watch while a library goes over many values or bytes.
#[derive(Debug)]
pub(super) struct Steps {
    watch: Watch,
    count: usize,
    may_be_ended: bool,
}

impl Steps {
    /// Values between two looks: much less than a millisecond.
    const BETWEEN: usize = 1 << 10;
    /// So many bytes take as long as a value.
    const BYTES: usize = 64;

    /// Of the script that runs.
    pub(super) fn of(lua: &Lua) -> Self {
        Self::under(lua.app_data_ref::<Watch>().map(|watch| watch.clone()).unwrap_or_default())
    }

    pub(super) const fn under(watch: Watch) -> Self {
        Self { watch, count: 0, may_be_ended: true }
    }

    /// Of what goes on to its end; others are served meanwhile.
    pub(super) const fn to_the_end(watch: Watch) -> Self {
        Self { watch, count: 0, may_be_ended: false }
    }

    /// One value, of so many bytes.
    ///
    /// # Errors
    /// If the script has to end.
    pub(super) fn step(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.count += 1 + bytes / Self::BYTES;
        if self.count < Self::BETWEEN {
            return Ok(());
        }
        self.count = 0;
        self.watch.look().or_else(|stopped| if self.may_be_ended { Err(stopped) } else { Ok(()) })
    }
}

impl From<Stopped> for mlua::Error {
    fn from(Stopped(text): Stopped) -> Self {
        Self::RuntimeError(text)
    }
}
