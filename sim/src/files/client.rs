//! What clients ask.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use savanna_files::Request;
use savanna_files::blocks::Place;
use savanna_files::change::CallId;
use savanna_files::ids::InodeId;
use savanna_files::request::{BlockName, Create, Written};

use super::process::Call;
use super::tree::{Answer, BLOCK_SIZE};

/// A request that is not answered yet.
pub(super) struct Pending {
    pub(super) call: Call,
    /// The process that has it; none if its answer will not come.
    pub(super) at: Option<u64>,
}

/// A file that a client writes.
struct Open {
    file: Written,
    /// Its last block, as far as it is written.
    last: Option<BlockName>,
    stage: Stage,
}

/// How it is with the last block of a file that is written.
#[derive(Clone, Copy)]
enum Stage {
    /// It is written, or there is none.
    Written,
    /// It was written before, and is to be written on.
    Reopened,
    /// The same under this new generation.
    Stamped(BlockName),
    /// It has room, and nothing of it was written yet.
    Begun,
}

pub(super) struct Client {
    number: usize,
    calls: u64,
    /// How often it began anew under another name.
    lives: u32,
    pub(super) pending: Option<Pending>,
    open: Option<Open>,
}

/// What a client does next.
pub(super) enum Next {
    Ask(Request),
    /// It writes so many bytes of a block.
    Write(BlockName),
    /// It says that it is there.
    Renew,
}

impl Client {
    pub(super) const fn new(number: usize) -> Self {
        Self { number, calls: 0, lives: 0, pending: None, open: None }
    }

    /// What it calls itself.
    pub(super) fn name(&self) -> String {
        format!("client {} {}", self.number, self.lives)
    }

    /// It goes away, and leaves what it writes.
    pub(super) fn leave(&mut self) {
        self.lives += 1;
        (self.open, self.pending) = (None, None);
    }

    /// A request of it, asked for the first time.
    pub(super) fn call(&mut self, request: Request, floor: usize) -> Call {
        self.calls += 1;
        let mut client = [0; 16];
        client[0] = u8::try_from(self.number).expect("a few clients");
        let call = i32::try_from(self.calls).expect("a few calls");
        let id = request.is_done_once().then_some(CallId { client, call });
        Call { client: self.number, number: self.calls, request, id, floor }
    }

    /// What it does next, where there are these files that nobody writes.
    pub(super) fn next(&mut self, files: &[String], dice: &mut ChaCha8Rng) -> Next {
        let Some(open) = &mut self.open else { return Next::Ask(operation(&self.name(), files, dice)) };
        if dice.random_ratio(1, 10) {
            return Next::Renew;
        }
        let file = open.file.clone();
        match (open.stage, &mut open.last) {
            (Stage::Begun, Some(block)) => {
                block.length =
                    if dice.random() { BLOCK_SIZE } else { dice.random_range(block.length + 1..=BLOCK_SIZE) };
                return Next::Write(*block);
            }
            (Stage::Reopened, Some(block)) => {
                return Next::Ask(Request::NewStamp { block: *block, client: file.client });
            }
            (Stage::Stamped(new), Some(old)) => {
                return Next::Ask(Request::UpdatePipeline {
                    client: file.client,
                    old: *old,
                    new,
                    places: vec![Place::HERE],
                    are_all: true,
                });
            }
            _ => {}
        }
        Next::Ask(match dice.random_range(0..10) {
            0..4 => Request::AddBlock { file, previous: open.last, excluded: Vec::new() },
            4..9 => Request::Complete { file, last: open.last },
            _ => Request::GiveUp { file },
        })
    }

    /// What it wrote is on the data node; or that has a newer generation of it.
    pub(super) fn wrote(&mut self, is_taken: bool) {
        match &mut self.open {
            Some(open) if is_taken => open.stage = Stage::Written,
            _ => self.open = None,
        }
    }

    /// It hears an answer.
    pub(super) fn hear(&mut self, request: &Request, answer: &Answer) {
        self.pending = None;
        match (request, answer) {
            (Request::Create(Create { path, .. }) | Request::Append { path, .. }, _) => {
                let (id, last, stage) = match answer {
                    Answer::Status(seen) => (seen.id(), None, Stage::Written),
                    Answer::Opened(seen, None) => (seen.id(), None, Stage::Written),
                    Answer::Opened(seen, Some((last, has_room))) => {
                        (seen.id(), Some(*last), if *has_room { Stage::Reopened } else { Stage::Written })
                    }
                    _ => return,
                };
                let file = Written { path: path.clone(), id: Some(id), client: self.name() };
                self.open = Some(Open { file, last, stage });
            }
            (Request::AddBlock { .. }, Answer::Block(id, stamp)) => {
                if let Some(open) = &mut self.open {
                    open.last = Some(BlockName { id: *id, stamp: *stamp, length: 0 });
                    open.stage = Stage::Begun;
                }
            }
            (Request::NewStamp { block, .. }, Answer::Block(id, stamp)) => {
                if let Some(open) = &mut self.open {
                    open.stage = Stage::Stamped(BlockName { id: *id, stamp: *stamp, length: block.length });
                }
            }
            (Request::UpdatePipeline { new, .. }, Answer::Done) => {
                if let Some(open) = &mut self.open {
                    (open.last, open.stage) = (Some(*new), Stage::Begun);
                }
            }
            (Request::Complete { .. }, Answer::Bool(false)) => {}
            (
                Request::AddBlock { .. }
                | Request::Complete { .. }
                | Request::GiveUp { .. }
                | Request::NewStamp { .. }
                | Request::UpdatePipeline { .. },
                _,
            ) => self.open = None,
            _ => {}
        }
    }
}

fn name(dice: &mut ChaCha8Rng) -> &'static str {
    const NAMES: [&str; 5] = ["a", "ab", "%", "_", "ü"];
    NAMES[dice.random_range(0..NAMES.len())]
}

fn path(dice: &mut ChaCha8Rng) -> String {
    let depth = [1, 1, 2, 2, 2, 3][dice.random_range(0..6)];
    (0..depth).map(|_| format!("/{}", name(dice))).collect()
}

/// One of these paths; any one, if there is none.
pub(super) fn one_of(paths: &[String], dice: &mut ChaCha8Rng) -> String {
    if paths.is_empty() { path(dice) } else { paths[dice.random_range(0..paths.len())].clone() }
}

fn operation(client: &str, files: &[String], dice: &mut ChaCha8Rng) -> Request {
    let (one, other) = (path(dice), path(dice));
    match dice.random_range(0..100) {
        0..14 => Request::Mkdirs { path: one, mode: 0o755.into(), with_parents: true },
        14..30 => Request::Create(Create {
            path: one,
            mode: 0o644.into(),
            client: client.to_owned(),
            overwrites: dice.random(),
            creates: true,
            with_parents: true,
            replication: 1,
            block_size: BLOCK_SIZE,
            is_all_or_nothing: dice.random(),
        }),
        30..42 => Request::Delete { path: one, is_recursive: dice.random_ratio(2, 3) },
        42..54 => Request::Rename { from: one, to: other },
        54..66 => Request::Rename2 { from: one, to: other, overwrites: dice.random() },
        66..76 => Request::Append {
            path: if dice.random_ratio(3, 4) { one_of(files, dice) } else { one },
            client: client.to_owned(),
            is_in_new_block: dice.random(),
            is_all_or_nothing: dice.random(),
        },
        76..88 => Request::FileInfo { path: one },
        _ => {
            let path = if dice.random_ratio(1, 4) { "/".to_owned() } else { one };
            let after = if dice.random() { name(dice).as_bytes().to_vec() } else { Vec::new() };
            Request::Listing { path, after, with_locations: false }
        }
    }
}

/// The number of a file that a request is about, if it says it.
pub(super) fn file_of(request: &Request) -> Option<InodeId> {
    match request {
        Request::AddBlock { file, .. } | Request::Complete { file, .. } | Request::GiveUp { file } => file.id,
        _ => None,
    }
}
