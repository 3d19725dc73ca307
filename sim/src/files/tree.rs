//! A plain tree in memory, which knows nothing of changes, logs and caches: what clients are to be answered.

use std::collections::BTreeMap;

use savanna_files::change::{self, CLOSERS, CallId, Counters, RECOVERY, RetryAnswer, Row, TRUNCATION, Unfinished};
use savanna_files::ids::{BlockId, InodeId, Millis, Stamp};
use savanna_files::operation::Recovery;
use savanna_files::request::{self, BlockName, Status, Written};
use savanna_files::retry::KEPT;
use savanna_files::{Class, FilesError, Reply, Request};

/// Entries of a page of a listing.
pub(super) const PAGE: usize = 5;
/// Bytes of a block.
pub(super) const BLOCK_SIZE: u64 = 64;

/// What the data node has: generation and bytes.
pub(super) type Replicas = BTreeMap<BlockId, (Stamp, u64)>;

/// What is compared of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Bool(bool),
    Nothing,
    Status(Seen),
    /// A page of a directory, and whether there is more.
    Page(Vec<Seen>, bool),
    Block(BlockId, Stamp),
    /// A file that was opened to be written on, and its last block if that is not full, and whether it is to be written on.
    Opened(Seen, Option<(BlockName, bool)>),
    Refused(Class),
}

/// What clients see of an inode; a name in a listing only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    name: String,
    id: InodeId,
    is_directory: bool,
    length: u64,
    children: usize,
}

impl Seen {
    pub(super) const fn id(&self) -> InodeId {
        self.id
    }

    fn of(status: &Status) -> Self {
        let name = String::from_utf8_lossy(&status.name).into_owned();
        let Status { id, is_directory, length, children, .. } = *status;
        Self { name, id, is_directory, length, children }
    }
}

impl Answer {
    /// Whether it is what was expected: a page may end earlier, if it says that there may be more.
    pub(super) fn is(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Page(entries, more), Self::Page(all, expected)) => {
                all.starts_with(entries)
                    && (!entries.is_empty() || all.is_empty())
                    && (*more || entries.len() == all.len() && !expected)
            }
            _ => self == expected,
        }
    }

    /// What the product answers.
    pub(super) fn of(answer: &Result<Reply, FilesError>) -> Self {
        match answer {
            Err(error) => Self::Refused(error.class),
            Ok(Reply::Bool(answer)) => Self::Bool(*answer),
            Ok(Reply::Status(None) | Reply::Listing(None)) => Self::Nothing,
            Ok(Reply::Status(Some(status))) => Self::Status(Seen::of(status)),
            Ok(Reply::Listing(Some(listing))) => {
                Self::Page(listing.entries.iter().map(Seen::of).collect(), listing.remaining > 0)
            }
            Ok(Reply::Block(located)) => Self::Block(located.block.id, located.block.stamp),
            Ok(Reply::Appended(last, status)) => {
                Self::Opened(Seen::of(status), last.as_ref().map(|last| (last.block, last.is_there())))
            }
            Ok(_) => Self::Done,
        }
    }
}

/// How a request is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) now: Millis,
    pub(super) call: Option<CallId>,
    pub(super) replicas: &'a Replicas,
    /// Whether the writer of a file has gone, so that the file is taken from it.
    pub(super) has_gone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    id: BlockId,
    stamp: Stamp,
    length: u64,
    is_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    blocks: Vec<Block>,
    writer: Option<String>,
    unfinished: Unfinished,
    /// The generation under which its last block was written, once the name node closes it.
    written: Option<Stamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    parent: InodeId,
    name: String,
    /// None of a directory.
    file: Option<File>,
}

/// What there is after a change.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<InodeId, Node>,
    counters: Counters,
    answered: Vec<(Millis, CallId, RetryAnswer)>,
}

/// A path as far as it is there.
struct Found<'p> {
    names: Vec<&'p str>,
    ids: Vec<InodeId>,
}

impl Found<'_> {
    fn node(&self) -> Option<InodeId> {
        self.ids.get(self.names.len()).copied()
    }

    fn parent(&self) -> Option<InodeId> {
        self.ids.get(self.names.len().checked_sub(1)?).copied()
    }

    fn nearest(&self) -> InodeId {
        self.ids[self.ids.len() - 1]
    }
}

type Outcome = Result<Answer, Class>;

impl Tree {
    pub(super) fn new() -> Self {
        let root = Node { parent: InodeId::NOWHERE, name: String::new(), file: None };
        let nodes = BTreeMap::from([(InodeId::ROOT, root)]);
        Self { nodes, counters: Counters::default(), answered: Vec::new() }
    }

    /// Files that are not being written: their blocks with what the data node has to have of them.
    pub(super) fn whole_blocks(&self) -> impl Iterator<Item = (BlockId, Stamp, u64)> {
        let whole = self.nodes.values().filter_map(|node| node.file.as_ref()).filter(|file| file.writer.is_none());
        whole.flat_map(|file| file.blocks.iter().map(|block| (block.id, block.stamp, block.length)))
    }

    /// The paths of files: of those that are written, or of the others.
    pub(super) fn files(&self, are_written: bool) -> Vec<String> {
        let is_it = |node: &Node| node.file.as_ref().is_some_and(|file| file.writer.is_some() == are_written);
        self.nodes.iter().filter(|(_, node)| is_it(node)).map(|(id, _)| self.path(*id)).collect()
    }

    fn path(&self, id: InodeId) -> String {
        match self.nodes.get(&id) {
            Some(node) if id != InodeId::ROOT => format!("{}/{}", self.path(node.parent), node.name),
            _ => String::new(),
        }
    }

    /// Who writes the file at a path.
    pub(super) fn writer(&self, path: &str) -> Option<&str> {
        let id = self.find(path).node()?;
        self.nodes[&id].file.as_ref()?.writer.as_deref()
    }

    /// Who writes a file.
    pub(super) fn writer_of(&self, id: InodeId) -> Option<&str> {
        self.nodes.get(&id)?.file.as_ref()?.writer.as_deref()
    }

    fn find<'p>(&self, path: &'p str) -> Found<'p> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let mut ids = vec![InodeId::ROOT];
        for name in &names {
            let at = ids[ids.len() - 1];
            let Some(next) = self.child(at, name) else { break };
            ids.push(next);
        }
        Found { names, ids }
    }

    fn children(&self, directory: InodeId) -> impl Iterator<Item = (InodeId, &Node)> {
        self.nodes.iter().filter(move |(_, node)| node.parent == directory).map(|(id, node)| (*id, node))
    }

    fn child(&self, directory: InodeId, name: &str) -> Option<InodeId> {
        self.children(directory).find(|(_, node)| node.name == name).map(|(id, _)| id)
    }

    fn is_directory(&self, id: InodeId) -> bool {
        self.nodes[&id].file.is_none()
    }

    fn seen(&self, id: InodeId, name: &str) -> Seen {
        let file = self.nodes[&id].file.as_ref();
        let length = file.map_or(0, |file| file.blocks.iter().map(|block| block.length).sum());
        let (is_directory, children) = (file.is_none(), self.children(id).count());
        Seen { name: name.to_owned(), id, is_directory, length, children }
    }

    /// What who only looks is answered.
    pub(super) fn look(&self, request: &Request) -> Option<Answer> {
        Some(match request {
            Request::FileInfo { path } => match self.find(path).node() {
                Some(id) => Answer::Status(self.seen(id, "")),
                None => Answer::Nothing,
            },
            Request::Listing { path, after, .. } => match self.find(path).node() {
                None => Answer::Nothing,
                Some(id) if !self.is_directory(id) => Answer::Page(vec![self.seen(id, "")], false),
                Some(id) => {
                    let mut all: Vec<Seen> = self
                        .children(id)
                        .filter(|(_, node)| node.name.as_bytes() > &**after)
                        .map(|(id, node)| self.seen(id, &node.name))
                        .collect();
                    all.sort_by(|one, other| one.name.cmp(&other.name));
                    let has_more = all.len() > PAGE;
                    all.truncate(PAGE);
                    Answer::Page(all, has_more)
                }
            },
            _ => return None,
        })
    }

    /// What a request is answered, and what there is then.
    pub(super) fn ask(&mut self, request: &Request, asked: &Asked<'_>) -> Answer {
        if let Some(answer) = self.look(request) {
            return answer;
        }
        if let Some(answer) = asked.call.and_then(|call| self.again(call)) {
            return answer;
        }
        // What is refused has changed nothing.
        let before = self.nodes.clone();
        let counters = self.counters;
        match self.change(request, asked) {
            Ok(answer) => answer,
            Err(class) if asked.has_gone => Answer::Refused(class),
            Err(class) => {
                (self.nodes, self.counters) = (before, counters);
                Answer::Refused(class)
            }
        }
    }

    /// What a call is answered that was done before.
    fn again(&self, call: CallId) -> Option<Answer> {
        let (.., answer) = self.answered.iter().find(|(_, other, _)| *other == call)?;
        Some(match *answer {
            RetryAnswer::Done => Answer::Done,
            RetryAnswer::Bool(answer) => Answer::Bool(answer),
            RetryAnswer::Created(id) if self.nodes.contains_key(&id) => Answer::Status(self.seen(id, "")),
            RetryAnswer::Appended(id) if self.nodes.contains_key(&id) => self.opened(id),
            RetryAnswer::Created(_) | RetryAnswer::Appended(_) => Answer::Nothing,
        })
    }

    /// Whether a call was done before.
    pub(super) fn was_done(&self, call: CallId) -> bool {
        self.answered.iter().any(|(_, other, _)| *other == call)
    }

    /// Whether there is the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.counters == other.counters
    }

    /// Whether a call was done before, and opened a file that has gone since: while it is taken apart, it is still seen.
    pub(super) fn has_opened_what_went(&self, call: Option<CallId>) -> bool {
        let answered = self.answered.iter().find(|(_, other, _)| Some(*other) == call);
        answered.is_some_and(|(.., answer)| match answer {
            RetryAnswer::Created(id) | RetryAnswer::Appended(id) => !self.nodes.contains_key(id),
            RetryAnswer::Done | RetryAnswer::Bool(_) => false,
        })
    }

    fn opened(&self, id: InodeId) -> Answer {
        let file = self.nodes[&id].file.as_ref();
        let last = file.and_then(|file| file.blocks.last()).filter(|last| last.length < BLOCK_SIZE);
        // While it is ended it is there as it was written: a call that comes again may find it so.
        let written = file.and_then(|file| file.written);
        let named =
            |block: &Block| BlockName { id: block.id, stamp: written.unwrap_or(block.stamp), length: block.length };
        Answer::Opened(self.seen(id, ""), last.map(|last| (named(last), !last.is_ended)))
    }

    fn keep(&mut self, asked: &Asked<'_>, answer: RetryAnswer) {
        if let Some(call) = asked.call {
            self.answered.push((asked.now, call, answer));
            self.answered.retain(|(at, ..)| asked.now.since(*at) <= KEPT);
        }
    }

    fn change(&mut self, request: &Request, asked: &Asked<'_>) -> Outcome {
        match request {
            Request::Mkdirs { path, .. } => self.mkdirs(path),
            Request::Create(create) => self.create(create, asked),
            Request::Delete { path, is_recursive } => self.delete(path, *is_recursive, asked),
            Request::Rename { from, to } => self.rename(from, to, asked),
            Request::Rename2 { from, to, overwrites } => self.rename2(from, to, *overwrites, asked),
            Request::AddBlock { file, previous, .. } => self.add_block(file, *previous, asked),
            Request::Complete { file, last } => self.complete(file, *last, asked),
            Request::Append { path, client, is_in_new_block, is_all_or_nothing } => {
                self.append((path, client), (*is_in_new_block, *is_all_or_nothing), asked)
            }
            Request::NewStamp { block, client } => {
                self.begun(block.id, client)?;
                self.counters.stamp = self.counters.stamp.next();
                Ok(Answer::Block(block.id, self.counters.stamp))
            }
            Request::UpdatePipeline { client, old, new, .. } => {
                let (newest, id) = (self.counters.stamp, self.begun(old.id, client)?);
                let block = self.file(id)?.blocks.last_mut().ok_or(Class::Io)?;
                let is_newer = block.stamp < new.stamp && new.stamp <= newest;
                if block.id != new.id || !is_newer || !(block.length..=BLOCK_SIZE).contains(&new.length) {
                    return Err(Class::Io);
                }
                (block.stamp, block.length) = (new.stamp, new.length);
                self.keep(asked, RetryAnswer::Done);
                Ok(Answer::Done)
            }
            Request::GiveUp { file } => {
                let id = self.written(file)?;
                self.nodes.remove(&id);
                Ok(Answer::Bool(true))
            }
            other => panic!("the tree does not know {other:?}"),
        }
    }

    /// Makes what is missing of a path but its end, which is made by who asks.
    fn make(&mut self, found: &Found<'_>, file: Option<File>) -> Result<InodeId, Class> {
        let mut at = found.nearest();
        if !self.is_directory(at) {
            return Err(Class::ParentNotDirectory);
        }
        let missing = &found.names[found.ids.len() - 1..];
        for (number, name) in missing.iter().enumerate() {
            let id = self.counters.inode.next();
            self.counters.inode = id;
            let file = file.clone().filter(|_| number + 1 == missing.len());
            self.nodes.insert(id, Node { parent: at, name: (*name).to_owned(), file });
            at = id;
        }
        Ok(at)
    }

    fn mkdirs(&mut self, path: &str) -> Outcome {
        let found = self.find(path);
        match found.node() {
            Some(id) if self.is_directory(id) => Ok(Answer::Bool(true)),
            Some(_) => Err(Class::FileAlreadyExists),
            None => self.make(&found, None).map(|_| Answer::Bool(true)),
        }
    }

    fn create(&mut self, create: &request::Create, asked: &Asked<'_>) -> Outcome {
        let mut found = self.find(&create.path);
        if let Some(id) = found.node() {
            if self.is_directory(id) {
                return Err(Class::FileAlreadyExists);
            }
            if !create.overwrites {
                self.take_turn(id, asked)?;
                return Err(Class::FileAlreadyExists);
            }
            self.nodes.remove(&id);
            found.ids.pop();
        }
        let unfinished = if create.is_all_or_nothing { Unfinished::Goes } else { Unfinished::Stays };
        let file = File { blocks: Vec::new(), writer: Some(create.client.clone()), unfinished, written: None };
        let id = self.make(&found, Some(file))?;
        self.keep(asked, RetryAnswer::Created(id));
        Ok(Answer::Status(self.seen(id, "")))
    }

    fn delete(&mut self, path: &str, is_recursive: bool, asked: &Asked<'_>) -> Outcome {
        let Some(id) = self.find(path).node() else { return Ok(Answer::Bool(false)) };
        if !is_recursive && self.children(id).next().is_some() {
            return Err(Class::PathIsNotEmptyDirectory);
        }
        if id == InodeId::ROOT {
            return Ok(Answer::Bool(false));
        }
        self.remove(id);
        self.keep(asked, RetryAnswer::Bool(true));
        Ok(Answer::Bool(true))
    }

    fn remove(&mut self, id: InodeId) {
        let children: Vec<InodeId> = self.children(id).map(|(id, _)| id).collect();
        children.into_iter().for_each(|child| self.remove(child));
        self.nodes.remove(&id);
    }

    fn rename(&mut self, from: &str, to: &str, asked: &Asked<'_>) -> Outcome {
        let refused = Ok(Answer::Bool(false));
        let (source, into) = (self.find(from), self.find(to));
        let (Some(id), Some(name)) = (source.node(), source.names.last()) else { return refused };
        let path;
        let target = match into.node() {
            Some(directory) if directory == id && self.is_directory(id) => return refused,
            Some(directory) if self.is_directory(directory) => {
                path = format!("{to}/{name}");
                self.find(&path)
            }
            _ => into,
        };
        if target.node() == Some(id) {
            return Ok(Answer::Bool(true));
        }
        if target.node().is_some() || self.is_directory(id) && target.ids.contains(&id) {
            return refused;
        }
        if !self.is_directory(target.nearest()) {
            return Err(Class::ParentNotDirectory);
        }
        let Some(parent) = target.parent() else { return refused };
        self.move_to(id, parent, target.names[target.names.len() - 1]);
        self.keep(asked, RetryAnswer::Bool(true));
        Ok(Answer::Bool(true))
    }

    fn rename2(&mut self, from: &str, to: &str, overwrites: bool, asked: &Asked<'_>) -> Outcome {
        let (source, target) = (self.find(from), self.find(to));
        let id = source.node().ok_or(Class::FileNotFound)?;
        let Some(name) = target.names.last().filter(|_| id != InodeId::ROOT) else { return Err(Class::Io) };
        if source.names == target.names {
            return Err(Class::FileAlreadyExists);
        }
        if target.ids.contains(&id) {
            return Err(Class::Io);
        }
        if let Some(other) = target.node() {
            if self.is_directory(other) != self.is_directory(id) {
                return Err(Class::Io);
            }
            if !overwrites {
                return Err(Class::FileAlreadyExists);
            }
            if self.children(other).next().is_some() {
                return Err(Class::Io);
            }
        }
        if !self.is_directory(target.nearest()) && target.node().is_none() {
            return Err(Class::ParentNotDirectory);
        }
        let parent = target.parent().ok_or(Class::FileNotFound)?;
        target.node().into_iter().for_each(|other| self.remove(other));
        self.move_to(id, parent, name);
        self.keep(asked, RetryAnswer::Done);
        Ok(Answer::Done)
    }

    fn move_to(&mut self, id: InodeId, parent: InodeId, name: &str) {
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.parent, node.name) = (parent, name.to_owned());
        }
    }

    /// A file that a client says that it writes.
    fn written(&self, written: &Written) -> Result<InodeId, Class> {
        let id = written.id.filter(|id| self.nodes.contains_key(id)).ok_or(Class::FileNotFound)?;
        match self.writer_of(id) {
            Some(writer) if writer == written.client => Ok(id),
            _ => Err(Class::LeaseExpired),
        }
    }

    fn file(&mut self, id: InodeId) -> Result<&mut File, Class> {
        self.nodes.get_mut(&id).and_then(|node| node.file.as_mut()).ok_or(Class::FileNotFound)
    }

    fn add_block(&mut self, written: &Written, previous: Option<BlockName>, asked: &Asked<'_>) -> Outcome {
        let id = self.written(written)?;
        let (block, stamp) = (self.counters.block.next(), self.counters.stamp.next());
        let file = self.file(id)?;
        let is_it = |block: &Block, name: BlockName| block.id == name.id && block.stamp == name.stamp;
        let same = |block: Option<&Block>| match (block, previous) {
            (None, None) => true,
            (Some(block), None) => block.is_ended && block.length >= BLOCK_SIZE,
            (Some(block), Some(previous)) => is_it(block, previous),
            (None, Some(_)) => false,
        };
        if !same(file.blocks.last()) {
            let before_last = file.blocks.len().checked_sub(2).map(|at| &file.blocks[at]);
            let last = file.blocks.last().filter(|last| !last.is_ended && last.length == 0);
            let is_again = previous.is_none() && file.blocks.len() == 1 || previous.is_some() && same(before_last);
            return match last.filter(|_| is_again) {
                Some(last) => Ok(Answer::Block(last.id, last.stamp)),
                None => Err(Class::Io),
            };
        }
        let has = |block: &Block| asked.replicas.get(&block.id) == Some(&(block.stamp, block.length));
        if !file.blocks.iter().filter(|block| block.is_ended).all(has) {
            return Err(Class::NotReplicatedYet);
        }
        file.end(previous)?;
        file.blocks.push(Block { id: block, stamp, length: 0, is_ended: false });
        (self.counters.block, self.counters.stamp) = (block, stamp);
        Ok(Answer::Block(block, stamp))
    }

    fn complete(&mut self, written: &Written, last: Option<BlockName>, asked: &Asked<'_>) -> Outcome {
        let id = match self.written(written) {
            Ok(id) => id,
            Err(Class::LeaseExpired) => {
                let file = written.id.and_then(|id| self.nodes.get(&id)?.file.as_ref());
                let is_ended = file.is_some_and(|file| {
                    let block = file.blocks.last().map(|block| (block.id, block.stamp));
                    file.writer.is_none() && block == last.map(|last| (last.id, last.stamp))
                });
                return if is_ended { Ok(Answer::Bool(true)) } else { Err(Class::LeaseExpired) };
            }
            Err(class) => return Err(class),
        };
        let before = self.file(id)?.clone();
        let file = self.file(id)?;
        file.end(last)?;
        let has = |block: &Block| asked.replicas.get(&block.id) == Some(&(block.stamp, block.length));
        if !file.blocks.iter().all(|block| block.is_ended && has(block)) {
            *file = before;
            return Ok(Answer::Bool(false));
        }
        file.writer = None;
        Ok(Answer::Bool(true))
    }

    /// The file whose last block a client is writing.
    fn begun(&self, block: BlockId, client: &str) -> Result<InodeId, Class> {
        let last = |node: &Node| node.file.as_ref()?.blocks.last().filter(|last| !last.is_ended).map(|last| last.id);
        let (id, _) = self.nodes.iter().find(|(_, node)| last(node) == Some(block)).ok_or(Class::Io)?;
        if self.writer_of(*id) == Some(client) { Ok(*id) } else { Err(Class::LeaseExpired) }
    }

    /// Nobody writes a file; or its writer has gone, and the name node takes it from it.
    fn take_turn(&mut self, id: InodeId, asked: &Asked<'_>) -> Result<(), Class> {
        match self.writer_of(id) {
            None => Ok(()),
            Some(RECOVERY | TRUNCATION) => Err(Class::RecoveryInProgress),
            Some(_) if asked.has_gone => {
                self.begin_recovery(id);
                Err(Class::RecoveryInProgress)
            }
            Some(_) => Err(Class::AlreadyBeingCreated),
        }
    }

    fn append(
        &mut self,
        (path, client): (&str, &str),
        (is_in_new_block, is_all_or_nothing): (bool, bool),
        asked: &Asked<'_>,
    ) -> Outcome {
        let id = self.find(path).node().ok_or(Class::FileNotFound)?;
        if self.is_directory(id) {
            return Err(Class::FileAlreadyExists);
        }
        self.take_turn(id, asked)?;
        let Some(file) = &self.nodes[&id].file else { return Err(Class::FileAlreadyExists) };
        let has = |block: &Block| asked.replicas.get(&block.id) == Some(&(block.stamp, block.length));
        if !file.blocks.last().is_none_or(has) {
            return Err(Class::Io);
        }
        let length = file.blocks.iter().map(|block| block.length).sum();
        let file = self.file(id)?;
        (file.writer, file.written) = (Some(client.to_owned()), None);
        file.unfinished = if is_all_or_nothing { Unfinished::CutTo(length) } else { Unfinished::Stays };
        if let Some(last) = file.blocks.last_mut().filter(|last| !is_in_new_block && last.length < BLOCK_SIZE) {
            last.is_ended = false;
        }
        self.keep(asked, RetryAnswer::Appended(id));
        Ok(self.opened(id))
    }

    /// The name node takes a file from its writer.
    pub(super) fn begin_recovery(&mut self, id: InodeId) {
        let stamp = self.counters.stamp.next();
        let Ok(file) = self.file(id) else { return };
        let is_cut = file.writer.as_deref() == Some(TRUNCATION);
        let is_begun = file.writer.as_deref().is_some_and(|writer| CLOSERS.contains(&writer));
        if let Unfinished::CutTo(length) = file.unfinished {
            let mut left = length;
            for block in &mut file.blocks {
                block.length = block.length.min(left);
                left -= block.length;
            }
            // What was full before has something left; of no file a block is empty.
            let has_any = file.blocks.iter().take_while(|block| block.length > 0).count();
            file.blocks.truncate(has_any);
            (file.writer, file.unfinished) = (Some(TRUNCATION.to_owned()), Unfinished::Stays);
        } else if !is_cut {
            file.writer = Some(RECOVERY.to_owned());
        }
        if let Some(last) = file.blocks.last_mut().filter(|_| file.unfinished != Unfinished::Goes) {
            last.is_ended &= file.writer.as_deref() == Some(RECOVERY);
            file.written = if is_begun { file.written } else { Some(last.stamp) };
            last.stamp = stamp;
            self.counters.stamp = stamp;
        }
    }

    /// A file that was taken from its writer is closed with what the data node has, or goes.
    pub(super) fn finish_recovery(&mut self, recovery: &Recovery, length: Option<u64>) {
        let Ok(file) = self.file(recovery.inode) else { return };
        if file.unfinished == Unfinished::Goes {
            self.nodes.remove(&recovery.inode);
            return;
        }
        file.writer = None;
        match (file.blocks.last_mut(), length) {
            (Some(block), Some(length)) => (block.length, block.is_ended) = (length, true),
            (Some(block), None) if block.length > 0 => block.is_ended = true,
            (Some(_), None) => drop(file.blocks.pop()),
            (None, _) => {}
        }
    }

    /// What becomes of a wish to close the file at a path.
    pub(super) fn may_recover(&self, path: &str) -> Result<Option<InodeId>, Class> {
        let id = self.find(path).node().ok_or(Class::FileNotFound)?;
        let file = self.nodes[&id].file.as_ref().ok_or(Class::FileNotFound)?;
        Ok(file.writer.is_some().then_some(id))
    }

    /// What is to become of a file that is written, if that is not to be closed as it is.
    pub(super) fn unfinished(&self, id: InodeId) -> Option<Unfinished> {
        let file = self.nodes.get(&id)?.file.as_ref()?;
        file.writer.is_some().then_some(file.unfinished)
    }

    /// The generation under which the last block of a file was written that is to be closed.
    pub(super) fn written_under(&self, id: InodeId) -> Option<Stamp> {
        self.nodes.get(&id)?.file.as_ref()?.written
    }

    /// The last blocks of files that the name node closes, under the generations under which they are to be ended.
    pub(super) fn closing(&self) -> impl Iterator<Item = (BlockId, Stamp)> {
        let files = self.nodes.values().filter_map(|node| node.file.as_ref());
        let closing = files.filter(|file| file.writer.as_deref().is_some_and(|writer| CLOSERS.contains(&writer)));
        closing.filter_map(|file| file.blocks.last()).map(|block| (block.id, block.stamp))
    }

    /// Whether what a request of a writer is about is the same as in another tree.
    pub(super) fn is_same_for(&self, other: &Self, request: &Request) -> bool {
        let about = |tree: &Self| -> Option<(InodeId, File)> {
            let of = |id: InodeId| Some((id, tree.nodes.get(&id)?.file.clone()?));
            match request {
                Request::AddBlock { file, .. } | Request::Complete { file, .. } | Request::GiveUp { file } => {
                    of(file.id?)
                }
                Request::NewStamp { block, .. } | Request::UpdatePipeline { old: block, .. } => {
                    let has = |node: &Node| {
                        node.file.as_ref().is_some_and(|file| file.blocks.iter().any(|other| other.id == block.id))
                    };
                    tree.nodes.iter().find(|(_, node)| has(node)).and_then(|(id, _)| of(*id))
                }
                Request::Append { path, .. } => of(tree.find(path).node()?),
                _ => None,
            }
        };
        about(self) == about(other)
    }

    /// What of a row of the product is not as here: whatever is not in the tree has to be nowhere.
    pub(super) fn differs(&self, row: &Row) -> Option<String> {
        let Some(node) = self.nodes.get(&row.id) else { return Some("it is not there".to_owned()) };
        let here = (node.parent, node.name.as_bytes(), node.file.is_none());
        if here != (row.parent, &*row.name, row.file().is_none()) {
            return Some(format!("expected {here:?}"));
        }
        let (Some(file), Some(came)) = (&node.file, row.file()) else { return None };
        let block = |block: &change::Block| Block {
            id: block.id,
            stamp: block.stamp,
            length: block.length,
            is_ended: block.is_committed,
        };
        let blocks: Vec<Block> = came.blocks.iter().map(block).collect();
        let writer = came.writer.as_ref().map(|writer| (writer.client.to_string(), writer.unfinished, writer.written));
        let here = file.writer.clone().map(|writer| (writer, file.unfinished, file.written));
        (blocks != file.blocks || writer != here).then(|| format!("expected {file:?}"))
    }

    /// How many there are, and how many are in a directory.
    pub(super) fn counts(&self, directory: InodeId) -> (usize, usize) {
        (self.nodes.len(), self.children(directory).count())
    }

    /// Whether something has gone.
    pub(super) fn lacks(&self, id: InodeId) -> bool {
        !self.nodes.contains_key(&id)
    }

    /// All blocks of files.
    pub(super) fn blocks(&self) -> Vec<BlockId> {
        let files = self.nodes.values().filter_map(|node| node.file.as_ref());
        let mut blocks: Vec<BlockId> = files.flat_map(|file| &file.blocks).map(|block| block.id).collect();
        blocks.sort_unstable();
        blocks
    }

    /// The numbers that were given last are these: what is being taken apart takes some, too.
    pub(super) const fn number(&mut self, counters: Counters) {
        self.counters = counters;
    }

    /// The numbers that were given last.
    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }
}

impl File {
    fn end(&mut self, last: Option<BlockName>) -> Result<(), Class> {
        let (Some(block), Some(last)) = (self.blocks.last_mut(), last) else { return Ok(()) };
        let is_it = block.id == last.id && block.stamp == last.stamp;
        if !is_it || block.is_ended && last.length != block.length || last.length > BLOCK_SIZE {
            return Err(Class::Io);
        }
        (block.length, block.is_ended) = (last.length, true);
        Ok(())
    }
}
