//! The prompt: history, completion, statements over several lines.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use savanna_http::rows::to_objects;
use tokio::runtime::Handle;

use super::input::{Meta, is_complete, meta};
use super::shell::Shell;
use crate::error::CliError;

const HELP: &str = "\
Statements end with ; and may span lines. Ctrl-C cancels a running statement or the line, Ctrl-D or \\q leaves.
  \\d          tables and views
  \\d NAME     columns of a table or view
  \\queries    running queries and those that have lately ended
  \\? or help  this text
INSERT INTO starts a query that runs beside the prompt; STOP QUERY '<id>' stops it.
";

/// Words that complete.
const KEYWORDS: [&str; 62] = [
    "AND",
    "AS",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "CASE",
    "CAST",
    "COUNT",
    "CREATE",
    "DECIMAL",
    "DESCRIBE",
    "DESCRIPTOR",
    "DISTINCT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FILTER",
    "FROM",
    "GROUP",
    "HAVING",
    "HOP",
    "IF",
    "IN",
    "INSERT",
    "INT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LIKE",
    "MINUTE",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "QUERY",
    "RESET",
    "ROW",
    "SECOND",
    "SELECT",
    "SET",
    "SHOW",
    "STOP",
    "SUM",
    "TABLE",
    "TABLES",
    "THEN",
    "TIMESTAMP",
    "TRUE",
    "TUMBLE",
    "VARCHAR",
    "VIEW",
    "VIEWS",
    "WATERMARK",
    "WHEN",
    "WHERE",
    "WITH",
];

/// The longest history.
const HISTORY_LINES: usize = 10_000;

#[derive(Debug, Default)]
struct Prompt {
    /// Names of tables and views, as of the last statement.
    names: Arc<Mutex<Vec<String>>>,
}

impl Helper for Prompt {}
impl Highlighter for Prompt {}

impl Hinter for Prompt {
    type Hint = String;
}

impl Validator for Prompt {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let whole = text.trim().is_empty() || meta(text).is_some() || is_complete(text);
        Ok(if whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Prompt {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..position], &self.names.lock()))
    }
}

/// Where the word before the cursor starts, and what it may become: names as they are, keywords in the case typed.
fn complete(before: &str, names: &[String]) -> (usize, Vec<String>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let start =
        before.rfind(|c| !is_word(c)).map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let word = &before[start..];
    if word.is_empty() {
        return (start, Vec::new());
    }
    let lower = word.to_lowercase();
    let small = word.chars().all(|c| !c.is_uppercase());
    let tables = names.iter().filter(|name| name.to_lowercase().starts_with(&lower)).cloned();
    let keywords = KEYWORDS.iter().filter(|keyword| keyword.to_lowercase().starts_with(&lower));
    let keywords = keywords.map(|keyword| if small { keyword.to_lowercase() } else { (*keyword).to_owned() });
    (start, tables.chain(keywords).collect())
}

/// Runs the prompt until the user leaves. Must be called on a thread that may block.
pub(crate) fn run(shell: &mut Shell, runtime: &Handle) -> Result<(), CliError> {
    let config = Config::builder()
        .auto_add_history(true)
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES)
        .map_err(terminal)?
        .build();
    let mut editor: Editor<Prompt, DefaultHistory> = Editor::with_config(config).map_err(terminal)?;
    let prompt = Prompt::default();
    let names = Arc::clone(&prompt.names);
    editor.set_helper(Some(prompt));
    let history = history_file();
    if let Some(file) = &history {
        // There is none the first time.
        let _ = editor.load_history(file);
    }
    eprintln!("Savanna {}. Statements end with ; and help is at \\?", env!("CARGO_PKG_VERSION"));
    loop {
        *names.lock() = runtime.block_on(relation_names(shell));
        match editor.readline("savanna> ") {
            Ok(line) => {
                if runtime.block_on(line_typed(shell, &line))? == Next::Leave {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(terminal(error)),
        }
    }
    if let Some(file) = &history
        && let Err(error) = editor.append_history(file)
    {
        tracing::warn!(%error, file = %file.display(), "the history could not be written");
    }
    Ok(())
}

/// What comes after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Prompt,
    Leave,
}

/// Does what was typed.
async fn line_typed(shell: &mut Shell, line: &str) -> Result<Next, CliError> {
    let sql = match meta(line) {
        None if line.trim().is_empty() => return Ok(Next::Prompt),
        None => line.to_owned(),
        Some(Meta::Quit) => return Ok(Next::Leave),
        Some(Meta::Help) => {
            eprint!("{HELP}");
            return Ok(Next::Prompt);
        }
        Some(Meta::Describe(None)) => "SHOW TABLES; SHOW VIEWS".to_owned(),
        Some(Meta::Describe(Some(name))) => format!("DESCRIBE {name}"),
        Some(Meta::Queries) => "SHOW QUERIES".to_owned(),
        Some(Meta::Unknown(name)) => {
            eprintln!("unknown command {name}; \\? lists the commands");
            return Ok(Next::Prompt);
        }
    };
    // An error was told; the prompt comes back whatever became of the statement.
    shell.run(&sql, None).await?;
    Ok(Next::Prompt)
}

async fn relation_names(shell: &Shell) -> Vec<String> {
    let mut names = Vec::new();
    for sql in ["SHOW TABLES", "SHOW VIEWS"] {
        let Ok(rows) = shell.engine().rows(sql).await else {
            continue;
        };
        let objects = to_objects(&rows).unwrap_or_default();
        names.extend(objects.iter().filter_map(|object| Some(object.get("name")?.as_str()?.to_owned())));
    }
    names
}

/// `SAVANNA_HISTORY`, else in the user's state directory.
fn history_file() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("SAVANNA_HISTORY") {
        return Some(PathBuf::from(file));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    let directory = state.join("savanna");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("sql_history"))
}

fn terminal(error: ReadlineError) -> CliError {
    CliError::Io { doing: "reading from the terminal".to_owned(), source: std::io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_complete_to_tables_first_and_keep_the_case_of_keywords() {
        let names = vec!["Bid".to_owned(), "auction".to_owned()];
        assert_eq!(
            complete("select * from b", &names),
            (14, vec!["Bid".into(), "between".into(), "bigint".into(), "boolean".into(), "by".into()])
        );
        assert_eq!(complete("SEL", &names), (0, vec!["SELECT".into()]));
        assert_eq!(complete("SELECT é.au", &names), (10, vec!["auction".into()]));
        assert_eq!(complete("SELECT ", &names), (7, vec![]));
    }

    #[test]
    fn keywords_are_sorted_and_unique() {
        assert!(KEYWORDS.is_sorted_by(|a, b| a < b));
    }
}
