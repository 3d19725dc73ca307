//! A client as its session sees it: what comes of it, and what goes to it.

use std::io;

use savanna_pgwire_connection::{Output, Report, Wire};
use savanna_pgwire_login::Socket;
use savanna_tenants_host::{Encoding, Notice, Notification, Peer, SqlError, value::style::Style};

use crate::rows::RowWriter;

/// A message that is longer is not read.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A client's wire, and what its rows are written with.
pub(crate) struct ClientWire<S> {
    pub(crate) wire: Wire<S>,
    pub(crate) rows: RowWriter,
}

impl<S> ClientWire<S> {
    pub(crate) fn output(&mut self) -> &mut Output {
        &mut self.wire.output
    }
}

impl<S: Socket> Peer for ClientWire<S> {
    async fn gone(&mut self) -> io::Error {
        self.wire.gone_beyond(MESSAGE_BYTES_MAX).await
    }

    async fn gone_while_light(&mut self) -> Option<io::Error> {
        self.wire.gone_while_light().await
    }

    fn is_light(&self) -> bool {
        self.wire.is_light()
    }

    fn notice(&mut self, notice: &Notice) {
        put_notice(&mut self.wire.output, notice);
    }

    fn heard(&mut self, heard: &Notification) {
        self.wire.output.notification(heard.pid, &heard.said.channel, &heard.said.payload);
    }

    fn style(&mut self, style: Style) {
        let before = std::mem::replace(&mut self.rows.style, style);
        if (before.dates, before.order) != (style.dates, style.order) {
            self.wire.output.parameter("DateStyle", &style.date_style());
        }
        if before.intervals != style.intervals {
            self.wire.output.parameter("IntervalStyle", style.interval_style());
        }
        if before.zone != style.zone {
            self.wire.output.parameter("TimeZone", &style.zone.name());
        }
    }

    fn encoding(&mut self, encoding: Encoding) {
        if self.rows.encoding != encoding {
            self.rows.encoding = encoding;
            self.wire.output.parameter("client_encoding", encoding.name());
        }
    }
}

/// Adds what a client is told beside an answer.
pub(crate) fn put_notice(output: &mut Output, notice: &Notice) {
    let severity = if notice.is_warning { "WARNING" } else { "NOTICE" };
    output.notice(severity, notice.state, &notice.message);
}

/// An error of a tenant, as its client is told of it.
pub(crate) fn report(error: SqlError) -> Report {
    let SqlError { state, message, detail, hint, constraint, position } = error;
    Report { state, message, detail, hint, constraint, position }
}

/// An error, as a client is told it that does not come in.
pub(crate) fn refusal(error: SqlError) -> Output {
    let mut output = Output::default();
    output.fatal(&report(error));
    output
}
