//! Queries that nobody has asked yet.

use savanna_streams_api::Result;

use crate::context::{Context, Running, Stream};
use crate::expression::Expression;
use crate::window::Window;
use crate::{col, path, quoted};

/// What a window puts to a row; a group of a window has both.
const BOUNDS: [&str; 2] = ["window_start", "window_end"];

/// A query. Each method gives another one; nothing runs before [`Frame::write_to`] or [`Frame::rows`].
#[derive(Clone, Debug)]
#[must_use = "a frame does nothing until its rows are asked for or written"]
pub struct Frame {
    context: Context,
    from: From,
    /// Whether its rows are those of a window, which has not been grouped.
    windowed: bool,
}

/// Where rows come from.
#[derive(Clone, Debug)]
enum From {
    Table(String),
    /// What stands behind `FROM`, such as windows.
    Item(String),
    /// A whole query.
    Query(String),
}

/// A frame by groups, of which aggregates are to be had.
#[derive(Clone, Debug)]
#[must_use = "groups do nothing without aggregates"]
pub struct Grouped {
    frame: Frame,
    keys: Vec<Expression>,
}

impl Frame {
    pub(crate) fn table(context: Context, name: &str) -> Self {
        Self { context, from: From::Table(path(name)), windowed: false }
    }

    pub(crate) fn query(context: Context, sql: &str) -> Self {
        let sql = sql.trim().trim_end_matches(';').to_owned();
        Self { context, from: From::Query(sql), windowed: false }
    }

    /// Some columns, or what is computed of them.
    pub fn select(self, columns: impl IntoIterator<Item = Expression>) -> Self {
        let columns: Vec<String> = columns.into_iter().map(|column| column.selected()).collect();
        let sql = format!("SELECT {} FROM {}", columns.join(", "), self.source());
        // Rows of a window are still such.
        Self { from: From::Query(sql), ..self }
    }

    /// The rows for which this is so.
    pub fn filter(self, condition: Expression) -> Self {
        let sql = format!("SELECT * FROM {} WHERE {}", self.source(), condition.sql());
        Self { from: From::Query(sql), ..self }
    }

    /// Its rows by windows: each row has `window_start`, `window_end` and `window_time` beside its own columns.
    pub fn window(self, window: Window) -> Self {
        let input = match &self.from {
            From::Table(name) => format!("TABLE {name}"),
            From::Item(_) | From::Query(_) => format!("({})", self.to_sql()),
        };
        Self { from: From::Item(window.over(&input)), windowed: true, ..self }
    }

    /// Its rows by groups. The groups of a window are by its bounds, too, whether or not they are among the keys.
    pub fn group_by(self, keys: impl IntoIterator<Item = Expression>) -> Grouped {
        Grouped { frame: self, keys: keys.into_iter().collect() }
    }

    /// A name, by which another frame that it is joined with calls its columns.
    pub fn alias(self, name: &str) -> Self {
        let item = format!("{} AS {}", self.unnamed(), quoted(name));
        Self { from: From::Item(item), ..self }
    }

    /// Both frames' rows for which this is so. Give both a name ([`Frame::alias`]), and [`select`](Frame::select) from the result.
    pub fn join(self, other: Self, on: Expression) -> Self {
        let item = format!("{} JOIN {} ON {}", self.source(), other.source(), on.sql());
        Self { from: From::Item(item), windowed: false, ..self }
    }

    /// The rows of both.
    pub fn union_all(self, other: &Self) -> Self {
        let sql = format!("{} UNION ALL {}", self.to_sql(), other.to_sql());
        Self { from: From::Query(sql), windowed: false, ..self }
    }

    /// Its statement.
    #[must_use]
    pub fn to_sql(&self) -> String {
        match &self.from {
            From::Query(sql) => sql.clone(),
            From::Table(source) | From::Item(source) => format!("SELECT * FROM {source}"),
        }
    }

    /// What `EXPLAIN` says: the stages, and what they cost.
    ///
    /// # Errors
    /// The query is none, or the engine does not answer.
    pub async fn explain(&self) -> Result<String> {
        self.context.lines(&format!("EXPLAIN {}", self.to_sql())).await
    }

    /// Starts it. Its rows are written into a table, column by column in their order.
    ///
    /// # Errors
    /// The query is none, its columns are not the table's, or the engine does not answer.
    pub async fn write_to(&self, table: &str) -> Result<Running> {
        self.context.start(&format!("INSERT INTO {} {}", path(table), self.to_sql())).await
    }

    /// Starts it, and gives its rows.
    ///
    /// # Errors
    /// The query is none, or the engine does not answer.
    pub async fn rows(&self) -> Result<Stream> {
        self.context.stream(&self.to_sql()).await
    }

    /// As it stands behind `FROM`.
    fn source(&self) -> String {
        match &self.from {
            From::Table(source) | From::Item(source) => source.clone(),
            From::Query(sql) => format!("({sql})"),
        }
    }

    /// As it stands before a name.
    fn unnamed(&self) -> String {
        match &self.from {
            From::Table(name) => name.clone(),
            From::Item(_) | From::Query(_) => format!("({})", self.to_sql()),
        }
    }
}

impl Grouped {
    /// The keys, and these aggregates of each group: the columns of the result, in this order.
    pub fn agg(self, aggregates: impl IntoIterator<Item = Expression>) -> Frame {
        let Self { frame, keys } = self;
        let columns: Vec<String> = keys.iter().cloned().chain(aggregates).map(|column| column.selected()).collect();
        let mut by: Vec<String> = keys.iter().map(|key| key.sql().to_owned()).collect();
        if frame.windowed {
            let bounds = BOUNDS.iter().map(|bound| col(bound).sql().to_owned()).filter(|bound| !by.contains(bound));
            by.extend(bounds.collect::<Vec<_>>());
        }
        let by = if by.is_empty() { String::new() } else { format!(" GROUP BY {}", by.join(", ")) };
        let sql = format!("SELECT {} FROM {}{by}", columns.join(", "), frame.source());
        Frame { from: From::Query(sql), windowed: false, ..frame }
    }
}
