//! What goes to a client: messages that are collected until they may leave.

use bytes::BytesMut;
use pgwire::messages::{
    Message,
    copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse},
    data::{FieldDescription, NoData, ParameterDescription, RowDescription},
    extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended},
    response::{
        CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, NotificationResponse, ReadyForQuery,
        TransactionStatus,
    },
    startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey},
};

use crate::Report;
use crate::report::drop_zeros;

/// Answers of more bytes leave before all is done.
pub const OUTPUT_BYTES: usize = 256 << 10;

/// Where a client is in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// In none.
    Idle,
    /// In one.
    Transaction,
    /// In one that has failed.
    Failed,
}

/// Messages for a client.
#[derive(Debug, Default)]
pub struct Output {
    /// The messages, as they are sent.
    pub bytes: BytesMut,
}

/// The format of a value among those that a client named: none is text, one is for all.
#[must_use]
pub fn format(codes: &[i16], at: usize) -> i16 {
    match codes {
        [] => 0,
        [one] => *one,
        many => many.get(at).copied().unwrap_or(0),
    }
}

impl Output {
    /// Adds a message of ours, which is short enough.
    pub fn put(&mut self, message: &impl Message) {
        if let Err(error) = message.encode(&mut self.bytes) {
            tracing::error!(%error, "a message could not be written");
        }
    }

    /// The client is who it says.
    pub fn let_in(&mut self) {
        self.put(&Authentication::Ok);
    }

    /// What the client is told of the server, and the key by which its statements are cancelled.
    pub fn welcome(&mut self, parameters: &[(&str, &str)], (process, secret): (i32, i32)) {
        for (name, value) in parameters {
            self.parameter(name, value);
        }
        self.put(&BackendKeyData::new(process, SecretKey::I32(secret)));
    }

    /// The value of a setting that clients follow.
    pub fn parameter(&mut self, name: &str, value: &str) {
        self.put(&ParameterStatus::new(name.to_owned(), value.to_owned()));
    }

    /// The client may go on.
    pub fn ready(&mut self, status: Status) {
        self.put(&ReadyForQuery::new(match status {
            Status::Idle => TransactionStatus::Idle,
            Status::Transaction => TransactionStatus::Transaction,
            Status::Failed => TransactionStatus::Error,
        }));
    }

    /// What the client asked for went wrong.
    pub fn error(&mut self, report: &Report) {
        self.put(&ErrorResponse::new(report.fields("ERROR")));
    }

    /// The connection ends, and why.
    pub fn fatal(&mut self, report: &Report) {
        self.put(&ErrorResponse::new(report.fields("FATAL")));
    }

    /// Something beside an answer.
    pub fn notice(&mut self, severity: &str, state: &str, message: &str) {
        let fields = [(b'S', severity), (b'V', severity), (b'C', state), (b'M', message)];
        let fields = fields.map(|(field, text)| {
            let mut text = text.to_owned();
            drop_zeros(&mut text);
            (field, text)
        });
        self.put(&NoticeResponse::new(fields.to_vec()));
    }

    /// What another connection, of this number, says to those who listen to a channel.
    pub fn notification(&mut self, pid: i32, channel: &str, payload: &str) {
        self.put(&NotificationResponse::new(pid, channel.to_owned(), payload.to_owned()));
    }

    /// A statement is done.
    pub fn complete(&mut self, tag: &str) {
        self.put(&CommandComplete::new(tag.to_owned()));
    }

    /// There was no statement.
    pub fn empty(&mut self) {
        self.put(&EmptyQueryResponse::new());
    }

    pub(crate) fn parsed(&mut self) {
        self.put(&ParseComplete::new());
    }

    pub(crate) fn bound(&mut self) {
        self.put(&BindComplete::new());
    }

    pub(crate) fn closed(&mut self) {
        self.put(&CloseComplete::new());
    }

    /// There are more rows in the portal.
    pub fn suspended(&mut self) {
        self.put(&PortalSuspended::new());
    }

    /// The types of a statement's parameters.
    pub fn parameters(&mut self, types: impl IntoIterator<Item = u32>) {
        self.put(&ParameterDescription::new(types.into_iter().collect()));
    }

    /// The columns of a result; nothing if it has no rows.
    pub fn columns(&mut self, columns: Option<Vec<FieldDescription>>) {
        match columns {
            Some(columns) => self.put(&RowDescription::new(columns)),
            None => self.put(&NoData::new()),
        }
    }

    /// Rows of a COPY are wanted, in the format of this code.
    pub fn copy_in(&mut self, columns: usize, code: i16) {
        self.put(&CopyInResponse::new(code as i8, columns as i16, vec![code; columns]));
    }

    /// Rows of a COPY follow, in the format of this code.
    pub fn copy_out(&mut self, columns: usize, code: i16) {
        self.put(&CopyOutResponse::new(code as i8, columns as i16, vec![code; columns]));
    }

    /// Rows of a COPY.
    pub fn copy_data(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.put(&CopyData::new(bytes.into()));
        }
    }

    /// There are no more.
    pub fn copy_done(&mut self) {
        self.put(&CopyDone::new());
    }
}
