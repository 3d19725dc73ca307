//! Operations: each reads a namespace, and says what it answers and what it changes.

mod access_list;
mod add_block;
mod append;
mod attributes;
mod complete;
mod concat;
mod create;
mod delete;
mod emptying;
mod extended;
mod listing;
mod locations;
mod mkdirs;
mod pipeline;
mod recover_lease;
mod rename;
mod set_quota;
mod status;
mod summary;
mod truncate;

use crate::cache::{Known, Missing, View};
use crate::change::{CLOSERS, CallId, Change, Retry, RetryAnswer};
use crate::error::{Class, FilesError};
use crate::ids::{InodeId, Txid};
use crate::namespace::{Draft, Namespace, path_in};
use crate::quota;
use crate::request::{self, Context, LocatedBlock, Reply, Request, Status, Written};
use crate::tree::Inode;

pub use self::emptying::{Asked, Below, Emptying};
pub use self::recover_lease::{Begun, Recovery};
pub use self::summary::{Counted, Rights, Summary, Walk};

/// What becomes of a request.
#[derive(Debug)]
pub struct Decision {
    /// The answer. It may leave when the log has `change`, or all up to `depends`.
    pub answer: Result<Reply, FilesError>,
    /// What it changes. Nothing was changed yet.
    pub change: Option<Change>,
    /// The newest change that the answer depends on.
    pub depends: Txid,
    /// What closes a file, once the log has the change.
    pub recovery: Option<Recovery>,
}

/// What an operation comes to.
enum Outcome {
    /// An answer, and the newest change of what was read.
    Read(Reply, Txid),
    /// A change, and the answer.
    Changed(Reply, Change),
    /// A change, the answer, and what closes a file then.
    Closing(Result<Reply, FilesError>, Change, Recovery),
}

impl Outcome {
    /// A change of a call that may come again, and its answer.
    fn changed(draft: Draft<'_>, call: Option<CallId>, reply: Reply, answer: RetryAnswer) -> Self {
        Self::Changed(reply, draft.done(call.map(|call| Retry { call, answer })))
    }

    /// A change that may be done twice, and its answer.
    fn repeatable(draft: Draft<'_>, reply: Reply) -> Self {
        Self::Changed(reply, draft.done(None))
    }
}

impl Namespace {
    /// What becomes of a request. Reads only.
    ///
    /// # Errors
    /// [`Missing`], if it needs what is not here, and not known to be nowhere.
    pub fn decide(&self, request: &Request, context: &Context<'_>, known: Option<&Known>) -> Result<Decision, Missing> {
        self.look(known, |view| view.decide(request, context))
    }
}

impl View<'_> {
    fn decide(&self, request: &Request, context: &Context<'_>) -> Decision {
        if let Some(call) = context.call
            && let Some((answer, depends)) = self.retries.get(&call)
        {
            if self.is_reading && matches!(answer, RetryAnswer::Appended(_)) {
                let refusal = Err(FilesError::new(Class::Retriable, NO_PLACES));
                return Decision { answer: refusal, change: None, depends, recovery: None };
            }
            return Decision { answer: Ok(self.again(answer)), change: None, depends, recovery: None };
        }
        if let Some(refusal) = self.refusal(request) {
            return Decision { answer: Err(refusal), change: None, depends: self.txid(), recovery: None };
        }
        let outcome = self.outcome(request, context).and_then(|outcome| self.charged(outcome, context));
        match outcome {
            Ok(Outcome::Read(reply, depends)) => Decision { answer: Ok(reply), change: None, depends, recovery: None },
            Ok(Outcome::Changed(reply, change)) => {
                Decision { answer: Ok(reply), depends: change.txid, change: Some(change), recovery: None }
            }
            Ok(Outcome::Closing(answer, change, recovery)) => {
                Decision { answer, depends: change.txid, change: Some(change), recovery: Some(recovery) }
            }
            // Which of all that was looked at made it fail is not followed up.
            Err(error) => Decision { answer: Err(error), change: None, depends: self.txid(), recovery: None },
        }
    }

    /// Why a request is refused for the moment, whatever it says.
    fn refusal(&self, request: &Request) -> Option<FilesError> {
        let words = match request.changes() {
            true if self.is_safe => SAFE_MODE,
            true if self.is_reading => READING,
            true if self.is_waiting => WAITING,
            false if self.is_reading && request.tells_places() => {
                return Some(FilesError::new(Class::Retriable, NO_PLACES));
            }
            _ => return None,
        };
        Some(FilesError::new(Class::SafeMode, words))
    }

    /// An outcome whose change counts in the quotas of directories.
    fn charged(&self, mut outcome: Outcome, context: &Context<'_>) -> Result<Outcome, FilesError> {
        if let Outcome::Changed(_, change) | Outcome::Closing(_, change, _) = &mut outcome {
            quota::charge(self, change, context.counted)?;
        }
        Ok(outcome)
    }

    fn outcome(&self, request: &Request, context: &Context<'_>) -> Result<Outcome, FilesError> {
        check_texts(request, context)?;
        match self.named_request(request)? {
            Some(named) => self.outcome_of(&named, context),
            None => self.outcome_of(request, context),
        }
    }

    fn outcome_of(&self, request: &Request, context: &Context<'_>) -> Result<Outcome, FilesError> {
        match request {
            Request::FileInfo { path } => status::file_info(self, context, path),
            Request::LocatedInfo { path } => status::located_info(self, context, path),
            Request::OpenFiles { path, after } => status::open_files(self, context, path, *after),
            Request::Listing { path, after, with_locations } => {
                listing::listing(self, context, path, after, *with_locations)
            }
            Request::BlockLocations { path, offset, length } => {
                locations::block_locations(self, context, path, *offset, *length)
            }
            Request::Mkdirs { path, mode, with_parents } => mkdirs::mkdirs(self, context, path, *mode, *with_parents),
            Request::Create(create) => create::create(self, context, create),
            Request::Append { path, client, is_in_new_block, is_all_or_nothing } => {
                append::append(self, context, path, client, (*is_in_new_block, *is_all_or_nothing))
            }
            Request::Truncate { path, length, client } => truncate::truncate(self, context, path, *length, client),
            Request::Concat { path, sources } => concat::concat(self, context, path, sources),
            Request::AddBlock { file, previous, excluded } => {
                add_block::add_block(self, context, file, *previous, excluded)
            }
            Request::AbandonBlock { file, block } => add_block::abandon_block(self, context, file, *block),
            Request::Complete { file, last } => complete::complete(self, context, file, *last),
            Request::Fsync { file, length } => complete::fsync(self, context, file, *length),
            Request::NewStamp { block, client } => pipeline::new_stamp(self, context, *block, client),
            Request::UpdatePipeline { client, old, new, .. } => {
                pipeline::update_pipeline(self, context, client, *old, *new)
            }
            Request::Rename { from, to } => rename::rename(self, context, from, to),
            Request::Rename2 { from, to, overwrites } => rename::rename2(self, context, from, to, *overwrites),
            Request::GiveUp { file } => delete::give_up(self, context, file),
            Request::Delete { path, is_recursive } => delete::delete(self, context, path, *is_recursive),
            Request::SetPermission { path, mode } => attributes::set_permission(self, context, path, *mode),
            Request::SetOwner { path, owner, group } => {
                attributes::set_owner(self, context, path, owner.as_deref(), group.as_deref())
            }
            Request::SetTimes { path, mtime, atime } => attributes::set_times(self, context, path, *mtime, *atime),
            Request::SetReplication { path, replication } => {
                attributes::set_replication(self, context, path, *replication)
            }
            Request::SetQuota { path, names, space } => set_quota::set_quota(self, context, path, *names, *space),
            Request::Quota { path } => set_quota::quota(self, context, path),
            Request::SetAttribute { path, attribute, creates, replaces } => {
                extended::set_attribute(self, context, path, attribute, (*creates, *replaces))
            }
            Request::RemoveAttribute { path, space, name } => {
                extended::remove_attribute(self, context, path, (*space, name))
            }
            Request::Attributes { path, names } => extended::attributes(self, context, path, names),
            Request::AttributeNames { path } => extended::attribute_names(self, context, path),
            Request::EditAcl { path, edit } => access_list::edit(self, context, path, edit),
            Request::Acl { path } => access_list::list(self, context, path),
            Request::SetPolicy { path, policy } => extended::set_policy(self, context, path, *policy),
            Request::IsFileClosed { path } => status::is_file_closed(self, context, path),
            Request::PreferredBlockSize { path } => status::preferred_block_size(self, context, path),
            Request::CheckAccess { path, mode } => status::check_access(self, context, path, *mode),
        }
    }

    /// The answer to a call that was done before.
    fn again(&self, answer: RetryAnswer) -> Reply {
        match answer {
            RetryAnswer::Done => Reply::Done,
            RetryAnswer::Bool(answer) => Reply::Bool(answer),
            RetryAnswer::Created(id) => {
                let status = self.tree.get(id).map(|inode| Box::new(Status::of(&self.tree, inode).unnamed()));
                Reply::Status(status)
            }
            RetryAnswer::Appended(id) => match self.tree.get(id).and_then(|inode| Some((inode, inode.file()?))) {
                Some((inode, file)) => append::appended(self, inode, file),
                // It has gone meanwhile.
                None => Reply::Status(None),
            },
        }
    }

    /// A file that a client says that it writes.
    fn written<'t>(&'t self, context: &Context<'_>, file: &Written) -> Result<&'t Inode, FilesError> {
        let inode = self.named(context, file)?;
        self.check_writer(inode, &file.client)?;
        Ok(inode)
    }

    /// A file as its writer names it, whoever writes it.
    fn named<'t>(&'t self, context: &Context<'_>, file: &Written) -> Result<&'t Inode, FilesError> {
        let inode = match file.id {
            Some(id) => self.tree.get(id).filter(|inode| path_in(&self.tree, inode.id).is_some()),
            None => self.resolve(&file.path, context)?.inode(),
        };
        inode.ok_or_else(|| {
            let Written { path, id, client } = file;
            let id = id.unwrap_or(InodeId::NOWHERE);
            let words =
                format!("File does not exist: {path} (inode {id}) Holder {client} does not have any open files.");
            FilesError::new(Class::FileNotFound, words)
        })
    }

    /// Whether a client writes a file.
    fn check_writer(&self, inode: &Inode, client: &str) -> Result<(), FilesError> {
        let path = || path_in(&self.tree, inode.id).unwrap_or_default();
        let Some(file) = inode.file() else {
            return Err(FilesError::new(Class::LeaseExpired, format!("INode is not a regular file: {}", path())));
        };
        match &file.writer {
            None => Err(FilesError::new(
                Class::LeaseExpired,
                format!(
                    "File is not open for writing: {} (inode {}) Holder {client} does not have any open files.",
                    path(),
                    inode.id
                ),
            )),
            // What the name node closes nobody else writes, whatever it calls itself.
            Some(writer) if *writer.client != *client || CLOSERS.contains(&client) => Err(FilesError::new(
                Class::LeaseExpired,
                format!("Client (={client}) is not the lease owner (={}: {}", writer.client, path()),
            )),
            Some(_) => Ok(()),
        }
    }

    /// A block of a file, as clients hear of it.
    fn locate(&self, file: &crate::change::File, at: usize, offset: u64) -> LocatedBlock {
        let block = file.blocks[at];
        // What is cut is there in any case, too.
        let is_begun = file.writer.is_some() && !block.is_committed;
        // Until data nodes have ended it, they know it by the generation before, which is that of its writer.
        let written = file.writer.as_ref().and_then(|writer| writer.written).filter(|_| at + 1 == file.blocks.len());
        let stamp = self.blocks.generation_of_readers(block.id).or(written).unwrap_or(block.stamp);
        LocatedBlock {
            block: request::BlockName { id: block.id, stamp, length: block.length },
            offset,
            is_corrupt: self.blocks.is_corrupt(block.id),
            places: if is_begun && !self.blocks.has(&block) {
                self.blocks.pipeline(block.id)
            } else {
                self.blocks.places(&block)
            },
        }
    }
}

/// Refuses what a database cannot keep as text, and clients that call themselves what recovery is called.
fn check_texts(request: &Request, context: &Context<'_>) -> Result<(), FilesError> {
    let [one, other] = match request {
        Request::SetOwner { owner, group, .. } => [owner.as_deref(), group.as_deref()],
        Request::Create(request::Create { client, .. }) | Request::Append { client, .. } => {
            if CLOSERS.contains(&&**client) {
                let words = format!("Expected another name of the client than {client}, which the name node has");
                return Err(FilesError::new(Class::IllegalArgument, words));
            }
            [Some(&**client), None]
        }
        _ => [None, None],
    };
    let mut texts = [Some(context.user), Some(context.machine), one, other].into_iter().flatten();
    match texts.find(|text| text.contains('\0')) {
        None => Ok(()),
        Some(text) => {
            let words = format!("Expected names of users, groups and clients without NUL, came {text:?}");
            Err(FilesError::new(Class::IllegalArgument, words))
        }
    }
}

impl Request {
    /// Whether it may change anything.
    #[must_use]
    pub const fn changes(&self) -> bool {
        !matches!(
            self,
            Self::FileInfo { .. }
                | Self::LocatedInfo { .. }
                | Self::OpenFiles { .. }
                | Self::Listing { .. }
                | Self::BlockLocations { .. }
                | Self::Quota { .. }
                | Self::Attributes { .. }
                | Self::AttributeNames { .. }
                | Self::Acl { .. }
                | Self::IsFileClosed { .. }
                | Self::PreferredBlockSize { .. }
                | Self::CheckAccess { .. }
        )
    }

    /// Whether its answer says where blocks are.
    #[must_use]
    pub const fn tells_places(&self) -> bool {
        matches!(
            self,
            Self::BlockLocations { .. } | Self::LocatedInfo { .. } | Self::Listing { with_locations: true, .. }
        )
    }

    /// Whether it has to be done once, however often it is sent.
    #[must_use]
    pub const fn is_done_once(&self) -> bool {
        matches!(
            self,
            Self::Create(_)
                | Self::Append { .. }
                | Self::Concat { .. }
                | Self::Rename { .. }
                | Self::Rename2 { .. }
                | Self::Delete { .. }
                | Self::UpdatePipeline { .. }
                | Self::SetAttribute { .. }
                | Self::RemoveAttribute { .. }
        )
    }
}

const WAITING: &str = "Name node is in safe mode.\nMore than 0.1 % of the blocks of files were not reported yet by any data node. It ends when they were, or when the data nodes that were there before have reported or are dead. Use \"hdfs dfsadmin -safemode leave\" to turn safe mode off.";
const READING: &str = "Name node is in safe mode.\nIt has just been started, and looks at the blocks on its disk. It ends when it has; try again then.";
/// Where blocks are is not known yet.
pub const NO_PLACES: &str = "Where blocks are is not known yet: the name node has just been started, and looks at the blocks on its disk; try again when it has";
const SAFE_MODE: &str = "Name node is in safe mode.\nIt was turned on manually. Use \"hdfs dfsadmin -safemode leave\" to turn safe mode off.";
