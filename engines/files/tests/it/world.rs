//! A namespace with a log in memory, and a data node that has what is written.

use savanna_files::blocks::Replica;
use savanna_files::change::CallId;
use savanna_files::ids::{InodeId, Millis};
use savanna_files::request::{BlockName, Create, Status, Written};
use savanna_files::{Change, Class, Context, Decision, FilesError, Limits, Namespace, Reply, Request};

pub(crate) struct World {
    pub(crate) namespace: Namespace,
    pub(crate) log: Vec<Vec<u8>>,
    pub(crate) now: u64,
}

pub(crate) const SUPERUSER: &str = "root";

impl World {
    pub(crate) fn new() -> Self {
        Self { namespace: Namespace::new(SUPERUSER, limits()), log: Vec::new(), now: 1_000 }
    }

    pub(crate) fn context<'a>(&self, user: &'a str, call: Option<CallId>) -> Context<'a> {
        let (now, is_superuser) = (Millis(self.now), user == SUPERUSER);
        Context { now, user, groups: &[], is_superuser, call, machine: "127.0.0.1" }
    }

    /// Does a request as somebody, as a call that may come again.
    pub(crate) fn call(&mut self, user: &str, request: &Request, call: Option<CallId>) -> Result<Reply, FilesError> {
        self.now += 1;
        let Decision { answer, change, depends } = self.namespace.decide(request, &self.context(user, call));
        if let Some(change) = change {
            assert_eq!(depends, change.txid);
            self.take(&change);
        }
        assert!(depends <= self.namespace.txid());
        answer
    }

    pub(crate) fn take(&mut self, change: &Change) {
        self.log.push(change.encode());
        self.namespace.apply(change);
    }

    pub(crate) fn root(&mut self, request: &Request) -> Result<Reply, FilesError> {
        self.call(SUPERUSER, request, None)
    }

    /// The class of what a request fails with.
    pub(crate) fn refused(&mut self, user: &str, request: &Request) -> Class {
        self.call(user, request, None).expect_err("a refusal").class
    }

    pub(crate) fn status(&mut self, path: &str) -> Option<Status> {
        match self.root(&Request::FileInfo { path: path.to_owned() }).expect("a status") {
            Reply::Status(status) => status.map(|status| *status),
            other => panic!("{other:?}"),
        }
    }

    /// Writes a file of blocks of these lengths.
    pub(crate) fn write(&mut self, path: &str, lengths: &[u64]) -> Result<InodeId, FilesError> {
        let id = match self.root(&create(path, true))? {
            Reply::Status(Some(status)) => status.id,
            other => panic!("{other:?}"),
        };
        let file = written(path, id);
        let mut previous = None;
        for length in lengths {
            let request = Request::AddBlock { file: file.clone(), previous, is_node_excluded: false };
            let Reply::Block(located) = self.root(&request)? else { panic!("no block") };
            let block = BlockName { length: *length, ..located.block };
            assert!(self.namespace.blocks.received(replica(block)));
            previous = Some(block);
        }
        assert_eq!(self.root(&Request::Complete { file, last: previous })?, Reply::Bool(true));
        Ok(id)
    }

    /// What the log makes.
    pub(crate) fn recovered(&self) -> Namespace {
        let mut namespace = Namespace::new(SUPERUSER, limits());
        for bytes in &self.log {
            let change = Change::decode(bytes).expect("a change");
            namespace.apply(&change);
            namespace.apply(&change);
        }
        namespace
    }

    /// The process ends, and begins again with its log; the data node reports what it has.
    pub(crate) fn restart(&mut self) {
        let mut namespace = self.recovered();
        for row in self.namespace.tree().rows() {
            if let savanna_files::change::Kind::File(file) = row.kind {
                for block in file.blocks.iter().filter(|block| self.namespace.blocks.has(block)) {
                    let name = BlockName { id: block.id, stamp: block.stamp, length: block.length };
                    assert!(namespace.blocks.received(replica(name)));
                }
            }
        }
        self.namespace = namespace;
    }
}

fn limits() -> Limits {
    Limits { listing: 5, ..Limits::default() }
}

pub(crate) fn replica(block: BlockName) -> Replica {
    Replica { block: block.id, stamp: block.stamp, length: block.length }
}

pub(crate) fn written(path: &str, id: InodeId) -> Written {
    Written { path: path.to_owned(), id: Some(id), client: "writer".to_owned() }
}

pub(crate) fn create(path: &str, overwrites: bool) -> Request {
    Request::Create(Create {
        path: path.to_owned(),
        mode: 0o644,
        client: "writer".to_owned(),
        overwrites,
        creates: true,
        with_parents: true,
        replication: 1,
        block_size: 64,
    })
}

pub(crate) fn mkdirs(path: &str) -> Request {
    Request::Mkdirs { path: path.to_owned(), mode: 0o755, with_parents: true }
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete { path: path.to_owned(), is_recursive: true }
}

pub(crate) fn rename2(from: &str, to: &str, overwrites: bool) -> Request {
    Request::Rename2 { from: from.to_owned(), to: to.to_owned(), overwrites }
}
