//! Clients that write a file by a pipeline of data nodes: each write is a flush that is acknowledged when all of them have it.

use rand::Rng as _;
use savanna_files::blocks::{Holder, Place};
use savanna_files::change::File;
use savanna_files::ids::{BlockId, InodeId, Stamp};
use savanna_files::request::{BlockName, Create, LocatedBlock, Written};
use savanna_files::{Class, Reply, Request};

use super::check::Promise;
use super::world::{HERE, World};

/// The most bytes of a block.
pub(super) const BLOCK_SIZE: u64 = 32;

/// A client, and what it writes.
pub(super) struct Writer {
    pub(super) name: String,
    file: Option<Written>,
    block: Option<Writing>,
    stage: Stage,
}

/// A block that is being written.
struct Writing {
    id: BlockId,
    stamp: Stamp,
    /// Who writes it.
    pipeline: Vec<usize>,
    /// What was acknowledged.
    bytes: Vec<u32>,
    /// What was sent, and was not.
    sent: Vec<u32>,
}

impl Writing {
    fn name(&self) -> BlockName {
        BlockName { id: self.id, stamp: self.stamp, length: self.bytes.len() as u64 }
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Idle,
    /// It has a file, and no block.
    Opened,
    /// It needs a new generation, because its pipeline is another one.
    Stamping,
    /// It has this one, and so have they; the process of names has to hear of it.
    Updating(Stamp),
    Writing,
    /// All is written.
    Ended,
}

impl Writer {
    pub(super) fn new(number: usize) -> Self {
        Self { name: format!("client {number}"), file: None, block: None, stage: Stage::Idle }
    }

    /// The file that it writes, which block, and by which pipeline.
    pub(super) fn writes(&self) -> Option<(InodeId, BlockId, Vec<usize>)> {
        let writing = self.block.as_ref().filter(|_| matches!(self.stage, Stage::Writing))?;
        Some((self.file.as_ref()?.id?, writing.id, writing.pipeline.clone()))
    }

    /// It goes on without the data node in the process of names, which has ended.
    pub(super) fn lose_here(&mut self) {
        if let Some(writing) = &mut self.block {
            writing.pipeline.retain(|at| *at != HERE);
        }
        self.stage = Stage::Stamping;
    }

    /// It goes, and another one comes.
    pub(super) fn leave(&mut self) {
        *self = Self { name: format!("{}'", self.name), ..Self::new(0) };
    }
}

impl World {
    /// A client does what comes next.
    pub(super) fn write(&mut self, number: usize) -> Result<(), String> {
        if self.fails(40) {
            let file = self.writers[number].file.as_ref().and_then(|file| file.id);
            self.writers[number].leave();
            // Somebody else wants the file, or its lease is over a while later.
            return match file.filter(|_| self.dice.random()) {
                Some(file) => self.close_left(file),
                None => Ok(()),
            };
        }
        match self.writers[number].stage {
            Stage::Idle => self.open(number),
            Stage::Opened => self.add_block(number),
            Stage::Stamping => self.stamp(number),
            Stage::Updating(stamp) => self.update(number, stamp),
            Stage::Writing => self.write_some(number),
            Stage::Ended => self.complete(number),
        }
    }

    fn open(&mut self, number: usize) -> Result<(), String> {
        let client = self.writers[number].name.clone();
        let closed: Vec<String> =
            self.files().into_iter().filter(|(.., file)| file.writer.is_none()).map(|(path, ..)| path).collect();
        let is_new = closed.is_empty() || self.dice.random();
        let path = if is_new {
            self.paths += 1;
            format!("/{}", self.paths)
        } else {
            closed[self.dice.random_range(0..closed.len())].clone()
        };
        if is_new {
            let create = Create {
                path: path.clone(),
                mode: 0o644.into(),
                client: client.clone(),
                overwrites: false,
                creates: true,
                with_parents: true,
                replication: self.dice.random_range(1..=3),
                block_size: BLOCK_SIZE,
                is_all_or_nothing: false,
            };
            if let Some(Ok(Reply::Status(Some(status)))) = self.ask(&Request::Create(create))? {
                let writer = &mut self.writers[number];
                writer.file = Some(Written { path, id: Some(status.id), client });
                writer.stage = Stage::Opened;
            }
            return Ok(());
        }
        let request = Request::Append {
            path: path.clone(),
            client: client.clone(),
            is_in_new_block: false,
            is_all_or_nothing: false,
        };
        let Some(Ok(Reply::Appended(last, status))) = self.ask(&request)? else { return Ok(()) };
        let file = Written { path, id: Some(status.id), client };
        let Some(last) = last else {
            let writer = &mut self.writers[number];
            (writer.file, writer.stage) = (Some(file), Stage::Opened);
            return Ok(());
        };
        let pipeline = self.reached(&last);
        let bytes = self.promises.get(&last.block.id).map(|promise| promise.bytes.clone()).unwrap_or_default();
        let LocatedBlock { block: BlockName { id, stamp, .. }, .. } = last;
        let writer = &mut self.writers[number];
        writer.file = Some(file);
        // It goes on under a new generation.
        writer.block = Some(Writing { id, stamp, pipeline, bytes, sent: Vec::new() });
        writer.stage = Stage::Stamping;
        Ok(())
    }

    /// All files: where, which, and what each is.
    pub(super) fn files(&self) -> Vec<(String, InodeId, File)> {
        let rows = self.names.iter().flat_map(|names| names.namespace.tree().rows());
        let files = rows.filter_map(|row| {
            let file = row.file().cloned()?;
            Some((format!("/{}", String::from_utf8_lossy(&row.name)), row.id, file))
        });
        files.collect()
    }

    /// Where a client is to write.
    fn reached(&self, located: &LocatedBlock) -> Vec<usize> {
        let at = |place: &Place| self.names.as_ref().map(|names| names.at(place.holder));
        located.places.iter().filter_map(at).collect()
    }

    fn add_block(&mut self, number: usize) -> Result<(), String> {
        let Some(file) = self.writers[number].file.clone() else { return Ok(()) };
        // Files have one block here.
        let is_without = self.without_here > 0 && self.dice.random_ratio(1, self.without_here);
        let excluded = if is_without { vec![Holder::HERE] } else { Vec::new() };
        let request = Request::AddBlock { file, previous: None, excluded };
        let located = match self.ask(&request)? {
            Some(Ok(Reply::Block(located))) => located,
            Some(Err(error)) if error.class == Class::SafeMode => return Ok(()),
            _ => {
                self.writers[number].leave();
                return Ok(());
            }
        };
        let BlockName { id, stamp, .. } = located.block;
        let all = self.reached(&located);
        self.promises.insert(id, Promise::of_none(stamp, all.iter().copied()));
        let mut pipeline = Vec::new();
        for at in &all {
            if self.reaches(*at) && self.disk_mut(*at).begin(id, stamp) {
                self.says_that_it_has(*at, id);
                pipeline.push(*at);
            }
        }
        let writer = &mut self.writers[number];
        writer.stage = if pipeline.len() == all.len() { Stage::Writing } else { Stage::Stamping };
        writer.block = Some(Writing { id, stamp, pipeline, bytes: Vec::new(), sent: Vec::new() });
        Ok(())
    }

    /// A new generation, for those who are left of the pipeline.
    fn stamp(&mut self, number: usize) -> Result<(), String> {
        let Writer { name: client, block, .. } = &self.writers[number];
        let Some(writing) = block.as_ref().filter(|writing| !writing.pipeline.is_empty()) else {
            self.writers[number].leave();
            return Ok(());
        };
        let request = Request::NewStamp { block: writing.name(), client: client.clone() };
        let stamp = match self.ask(&request)? {
            Some(Ok(Reply::Block(located))) => located.block.stamp,
            Some(Err(error)) if error.class != Class::SafeMode => {
                self.writers[number].leave();
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Some(writing) = &self.writers[number].block else { return Ok(()) };
        let (id, length, before) = (writing.id, writing.bytes.len(), writing.pipeline.clone());
        let mut pipeline = Vec::new();
        for at in before {
            let was_whole = self.disk(at).0.get(&id).is_some_and(|stored| stored.is_all(stored.stamp, length as u64));
            if self.reaches(at) && self.disk_mut(at).go_on(id, stamp, length, at == HERE) {
                // Hadoop's says so of what it opens again, and not of what it goes on with.
                if was_whole {
                    self.says_that_it_has(at, id);
                }
                pipeline.push(at);
            }
        }
        self.happened.pipelines += 1;
        let writer = &mut self.writers[number];
        if let Some(writing) = &mut writer.block {
            writing.pipeline = pipeline;
        }
        writer.stage = Stage::Updating(stamp);
        Ok(())
    }

    /// The process of names hears of the new generation, and of the pipeline.
    fn update(&mut self, number: usize, stamp: Stamp) -> Result<(), String> {
        let Writer { name: client, block, .. } = &self.writers[number];
        let (Some(names), Some(writing)) = (&self.names, block) else { return Ok(()) };
        if writing.pipeline.is_empty() {
            self.writers[number].leave();
            return Ok(());
        }
        let pipeline = writing.pipeline.clone();
        let places: Vec<Option<Place>> = pipeline.iter().map(|at| names.place(*at)).collect();
        let are_all = places.iter().all(Option::is_some);
        let places: Vec<Place> = places.into_iter().flatten().collect();
        let (id, old) = (writing.id, writing.name());
        let new = BlockName { stamp, ..old };
        self.happened.partly += u32::from(!are_all);
        if let Some(promise) = self.promises.get_mut(&id) {
            promise.stamp = promise.stamp.max(stamp);
        }
        let are_all = are_all || self.variant == super::Variant::KnownPartIsAll;
        match self.ask(&Request::UpdatePipeline { client: client.clone(), old, new, places, are_all })? {
            Some(Ok(_)) => {}
            Some(Err(error)) if error.class != Class::SafeMode => {
                self.writers[number].leave();
                return Ok(());
            }
            // Whether it was done is not known: it is asked again, and refused perhaps.
            _ => return Ok(()),
        }
        if let Some(promise) = self.promises.get_mut(&id) {
            promise.members = pipeline.into_iter().collect();
        }
        let writer = &mut self.writers[number];
        if let Some(writing) = &mut writer.block {
            writing.stamp = stamp;
        }
        writer.stage = Stage::Writing;
        Ok(())
    }

    fn write_some(&mut self, number: usize) -> Result<(), String> {
        let what = self.dice.random_range(0..20);
        let more = self.dice.random_range(1..=4);
        let Writer { name: client, block, file, .. } = &mut self.writers[number];
        let (Some(writing), Some(file)) = (block, file) else { return Ok(()) };
        let room = usize::try_from(BLOCK_SIZE).expect("a few") - writing.bytes.len();
        if what == 0 && writing.sent.is_empty() && writing.pipeline.len() > 1 {
            // It thinks that one of them is slow.
            writing.pipeline.pop();
            self.writers[number].stage = Stage::Stamping;
            return Ok(());
        }
        if what < 3 && writing.sent.is_empty() || room == 0 {
            return self.finish_block(number);
        }
        if what < 5 && writing.sent.is_empty() {
            // A sync, with the length or without.
            let (id, pipeline, length) = (writing.id, writing.pipeline.clone(), writing.bytes.len() as u64);
            let request =
                Request::Fsync { file: Written { client: client.clone(), ..file.clone() }, length: Some(length) };
            for at in pipeline {
                if self.reaches(at) {
                    self.disk_mut(at).flush(id);
                }
            }
            if self.dice.random() {
                self.ask(&request)?;
            }
            return Ok(());
        }
        if writing.sent.is_empty() {
            let first = self.bytes;
            self.bytes += u32::try_from(more.min(room)).expect("a few");
            writing.sent = (first..self.bytes).collect();
        }
        let (id, stamp, at, sent) = (writing.id, writing.stamp, writing.bytes.len(), writing.sent.clone());
        let before = writing.pipeline.clone();
        let mut pipeline = Vec::new();
        for node in &before {
            if self.reaches(*node) && self.disk_mut(*node).write(id, stamp, at, &sent) {
                pipeline.push(*node);
            }
        }
        let is_acknowledged = pipeline.len() == before.len();
        let writer = &mut self.writers[number];
        let Some(writing) = &mut writer.block else { return Ok(()) };
        if is_acknowledged {
            writing.bytes.append(&mut writing.sent);
            self.happened.acknowledged += 1;
            if let Some(promise) = self.promises.get_mut(&id) {
                promise.bytes.clone_from(&writing.bytes);
            }
        } else {
            writing.pipeline = pipeline;
            writer.stage = Stage::Stamping;
        }
        Ok(())
    }

    /// All is written: each of the pipeline has to end it.
    fn finish_block(&mut self, number: usize) -> Result<(), String> {
        let Some(writing) = &self.writers[number].block else { return Ok(()) };
        let (id, stamp, length, pipeline) = (writing.id, writing.stamp, writing.bytes.len(), writing.pipeline.clone());
        let mut is_whole = length > 0;
        for at in pipeline {
            if is_whole && self.reaches(at) && self.disk_mut(at).finish(id, stamp, length) {
                self.says_that_it_has(at, id);
            } else {
                is_whole = false;
            }
        }
        if is_whole {
            self.writers[number].stage = Stage::Ended;
        } else {
            self.writers[number].leave();
        }
        Ok(())
    }

    fn complete(&mut self, number: usize) -> Result<(), String> {
        let Writer { block, file, .. } = &self.writers[number];
        let (Some(writing), Some(file)) = (block, file) else { return Ok(()) };
        let request = Request::Complete { file: file.clone(), last: Some(writing.name()) };
        match self.ask(&request)? {
            Some(Ok(Reply::Bool(true)) | Err(_)) => self.writers[number].leave(),
            _ => {}
        }
        Ok(())
    }

    /// Somebody who does not write changes a file: deletes it, wants other replicas of it, or cuts it.
    pub(super) fn administer(&mut self) -> Result<(), String> {
        let mut files = self.files();
        if files.is_empty() {
            return Ok(());
        }
        let (path, id, file) = files.swap_remove(self.dice.random_range(0..files.len()));
        let request = match self.dice.random_range(0..9) {
            0 => Request::Delete { path, is_recursive: false },
            1..4 => Request::SetReplication { path, replication: self.dice.random_range(1..=3) },
            4 => {
                let length = self.dice.random_range(0..=file.length());
                let Some(last) = file.blocks.last().filter(|_| file.writer.is_none()) else { return Ok(()) };
                if let Some(promise) = self.promises.get_mut(&last.id) {
                    promise.bytes.truncate(usize::try_from(length).expect("a few"));
                }
                Request::Truncate { path, length, client: "cutter".to_owned() }
            }
            _ => return self.close_left(id),
        };
        if let Request::Delete { .. } = request {
            file.blocks.iter().for_each(|block| drop(self.promises.remove(&block.id)));
        }
        self.ask(&request).map(drop)
    }
}
