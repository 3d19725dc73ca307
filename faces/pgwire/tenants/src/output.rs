//! What goes to a client: messages that are collected until they may leave.

use bytes::{BufMut, BytesMut};
use pgwire::messages::{
    Message,
    copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse},
    data::{FieldDescription, NoData, ParameterDescription, RowDescription},
    extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended},
    response::{CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus},
    startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey},
};
use savanna_tenants_host::{
    Notice, OutputColumn, SqlError, Status,
    copy::{CopyFormat, CopyKind},
    types::Type,
    value::{Value, zone::Zone},
};

use crate::copy;

/// Messages for a client.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: BytesMut,
    /// Where the client's clocks are.
    zone: Zone,
    text: String,
    binary: Vec<u8>,
}

/// The protocol's code of a format of `COPY`.
fn copy_code(format: &CopyFormat) -> i16 {
    i16::from(format.kind == CopyKind::Binary)
}

/// The format of a value among those that a client named: none is text, one is for all.
pub(crate) fn format(codes: &[i16], at: usize) -> i16 {
    match codes {
        [] => 0,
        [one] => *one,
        many => many.get(at).copied().unwrap_or(0),
    }
}

impl Output {
    /// Adds a message of ours, which is short enough.
    fn put(&mut self, message: &impl Message) {
        if let Err(error) = message.encode(&mut self.bytes) {
            tracing::error!(%error, "a message could not be written");
        }
    }

    /// The client is who it says.
    pub(crate) fn let_in(&mut self) {
        self.put(&Authentication::Ok);
    }

    pub(crate) fn welcome(&mut self, parameters: &[(&str, &str)], (process, secret): (i32, i32)) {
        for (name, value) in parameters {
            self.put(&ParameterStatus::new((*name).to_owned(), (*value).to_owned()));
        }
        self.put(&BackendKeyData::new(process, SecretKey::I32(secret)));
    }

    /// Tells where the client's clocks are, if that is news.
    pub(crate) fn zone(&mut self, zone: Zone) {
        if self.zone != zone {
            self.zone = zone;
            self.put(&ParameterStatus::new("TimeZone".to_owned(), zone.name()));
        }
    }

    pub(crate) fn ready(&mut self, status: Status) {
        self.put(&ReadyForQuery::new(match status {
            Status::Idle => TransactionStatus::Idle,
            Status::Transaction => TransactionStatus::Transaction,
            Status::Failed => TransactionStatus::Error,
        }));
    }

    pub(crate) fn error(&mut self, severity: &str, error: &SqlError) {
        let mut fields = vec![
            (b'S', severity.to_owned()),
            (b'V', severity.to_owned()),
            (b'C', error.state.to_owned()),
            (b'M', error.message.clone()),
        ];
        let optional = [(b'D', &error.detail), (b'H', &error.hint), (b'n', &error.constraint)];
        fields.extend(optional.into_iter().filter_map(|(code, text)| Some((code, text.as_deref()?.to_owned()))));
        fields.extend(error.position.map(|position| (b'P', position.to_string())));
        self.put(&ErrorResponse::new(fields));
    }

    pub(crate) fn notice(&mut self, notice: &Notice) {
        let severity = if notice.is_warning { "WARNING" } else { "NOTICE" };
        let fields = [(b'S', severity), (b'V', severity), (b'C', notice.state), (b'M', &notice.message)];
        let fields = fields.map(|(field, text)| (field, text.to_owned()));
        self.put(&NoticeResponse::new(fields.to_vec()));
    }

    pub(crate) fn complete(&mut self, tag: &str) {
        self.put(&CommandComplete::new(tag.to_owned()));
    }

    pub(crate) fn empty(&mut self) {
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

    pub(crate) fn suspended(&mut self) {
        self.put(&PortalSuspended::new());
    }

    pub(crate) fn no_data(&mut self) {
        self.put(&NoData::new());
    }

    pub(crate) fn parameters(&mut self, types: &[Type]) {
        self.put(&ParameterDescription::new(types.iter().map(|of| of.oid()).collect()));
    }

    pub(crate) fn columns(&mut self, columns: &[OutputColumn], formats: &[i16]) {
        let field = |(at, column): (usize, &OutputColumn)| {
            FieldDescription::new(
                column.name.clone(),
                column.origin.0 as i32,
                column.origin.1,
                column.of.oid(),
                column.of.wire_size(),
                column.of.modifier(),
                format(formats, at),
            )
        };
        self.put(&RowDescription::new(columns.iter().enumerate().map(field).collect()));
    }

    /// A row, without a message's detour.
    pub(crate) fn row(&mut self, row: &[Value], columns: &[OutputColumn], formats: &[i16]) {
        let start = self.bytes.len();
        self.bytes.put_u8(b'D');
        self.bytes.put_i32(0);
        self.bytes.put_i16(row.len() as i16);
        for (at, (value, column)) in row.iter().zip(columns).enumerate() {
            if value.is_null() {
                self.bytes.put_i32(-1);
                continue;
            }
            let bytes = if format(formats, at) == 0 {
                self.text.clear();
                value.write_text(column.of, self.zone, &mut self.text);
                self.text.as_bytes()
            } else {
                self.binary.clear();
                value.write_binary(column.of, &mut self.binary);
                &self.binary
            };
            self.bytes.put_i32(bytes.len() as i32);
            self.bytes.extend_from_slice(bytes);
        }
        let length = (self.bytes.len() - start - 1) as i32;
        self.bytes[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    }

    pub(crate) fn copy_in(&mut self, columns: usize, format: &CopyFormat) {
        let code = copy_code(format);
        self.put(&CopyInResponse::new(code as i8, columns as i16, vec![code; columns]));
    }

    pub(crate) fn copy_out(&mut self, columns: usize, format: &CopyFormat) {
        let code = copy_code(format);
        self.put(&CopyOutResponse::new(code as i8, columns as i16, vec![code; columns]));
    }

    /// A row of a COPY, behind what goes ahead of it in one message.
    pub(crate) fn copy_row(
        &mut self,
        mut ahead: Vec<u8>,
        row: &[Value],
        columns: &[OutputColumn],
        format: &CopyFormat,
    ) {
        ahead.extend(copy::row(row, columns, self.zone, format));
        self.copy_data(ahead);
    }

    pub(crate) fn copy_data(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.put(&CopyData::new(bytes.into()));
        }
    }

    pub(crate) fn copy_done(&mut self) {
        self.put(&CopyDone::new());
    }
}
