//! The simple protocol: a text of statements, each answered in turn.

use savanna_pgwire_connection::{Connection as _, OUTPUT_BYTES};
use savanna_streams_api::handle::{StreamReply, StreamRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Client;
use crate::error::{Outcome, from_engine, unexpected};
use crate::rows::{Opened, fields};

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Client<S> {
    /// Runs the statements of a text and answers each.
    pub(crate) async fn statements(&mut self, text: &str) -> Outcome<()> {
        let split = self.ask(StreamRequest::Split { sql: text.to_owned() }).await?;
        let statements = match split.map_err(|failure| from_engine(&failure, text, 0))? {
            StreamReply::Statements { statements } => statements,
            other => return Err(unexpected("Split", &other).into()),
        };
        if statements.is_empty() {
            self.wire.output.empty();
        }
        let mut searched = 0;
        for statement in statements {
            let offset = text[searched..].find(&statement).map_or(searched, |found| searched + found);
            searched = (offset + statement.len()).min(text.len());
            self.run(statement, text, offset).await?;
            if self.wire.output.bytes.len() >= OUTPUT_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Runs one statement, which begins at byte `offset` of the text, and gives its whole answer.
    async fn run(&mut self, statement: String, text: &str, offset: usize) -> Outcome<()> {
        self.check_transaction(&statement)?;
        let request = StreamRequest::Execute { session: self.session, sql: statement, parameters: vec![] };
        let reply = self.ask(request).await?.map_err(|failure| from_engine(&failure, text, offset))?;
        let Some(opened) = self.begun(reply)? else { return Ok(()) };
        let fields = fields(&opened.schema, &[])?;
        if opened.gives_rows() {
            self.wire.output.columns(Some(fields.iter().map(Into::into).collect()));
        }
        let sent = self.send_rows(&opened, &fields, 0).await?;
        self.wire.output.complete(&opened.tag(sent.rows));
        Ok(())
    }

    /// Answers what is done already; gives the result of a statement that has one.
    pub(crate) fn begun(&mut self, reply: StreamReply) -> Outcome<Option<Opened>> {
        match reply {
            StreamReply::Done { tag } => self.done(&tag),
            StreamReply::Started { query } => {
                let message =
                    format!("query {query} is running; SHOW QUERIES shows its progress, STOP QUERY '{query}' ends it");
                self.wire.output.notice("NOTICE", "00000", &message);
                self.wire.output.complete("INSERT 0 0");
            }
            StreamReply::Rows { schema, cursor, purpose, .. } => return Ok(Some(Opened { cursor, schema, purpose })),
            other => return Err(unexpected("Execute", &other).into()),
        }
        Ok(None)
    }
}
