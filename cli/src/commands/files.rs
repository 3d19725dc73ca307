//! `savanna files`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use savanna_hadoop::client::{Client, ClientError, Entry, Total, who_runs_this};
use savanna_node::{Config, NodeConfig};
use serde_json::{Value, json};

use crate::args::{FilesCommand, Format, ListFiles, OfFiles, TopFiles, TreeOfFiles};
use crate::error::{CliError, Exit};
use crate::output;

/// The port of a name node if its address has none.
const PORT: u16 = 8020;
/// So many files that are being written are shown.
const WRITING_MAX: usize = 20;

pub(crate) async fn run(config: &Config, format: Format, command: FilesCommand) -> Result<Exit, CliError> {
    let config = config.node().clone();
    // Calls block.
    let done = tokio::task::spawn_blocking(move || match command {
        FilesCommand::Ls(list) => ls(&mut Connection::new(&list.of, &config)?, format, &list),
        FilesCommand::Tree(tree) => self::tree(&mut Connection::new(&tree.of, &config)?, format, &tree),
        FilesCommand::Du(list) => du(&mut Connection::new(&list.of, &config)?, format, &list.path),
        FilesCommand::Stat(list) => stat(&mut Connection::new(&list.of, &config)?, format, &list.path),
        FilesCommand::Top(top) => self::top(&mut Connection::new(&top.of, &config)?, format, &top),
    });
    done.await.map_err(|error| CliError::Refused(error.to_string()))??;
    Ok(Exit::Done)
}

/// The way to a name node.
struct Connection {
    client: Client,
    url: String,
}

impl Connection {
    /// To the one at `url`, or the one that the configuration would start.
    fn new(of: &OfFiles, config: &NodeConfig) -> Result<Self, CliError> {
        let address = match config.address {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            address => address,
        };
        let own = format!("hdfs://{}", SocketAddr::new(address, config.files_port));
        let text = of.url.as_deref().unwrap_or(&own);
        let url = Url::parse(text).ok().filter(|url| url.scheme() == "hdfs" && url.has_host());
        let url = url.ok_or_else(|| CliError::Usage(format!("expected hdfs://HOST:PORT, but `{text}` came")))?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let user = std::env::var("HADOOP_USER_NAME").unwrap_or_else(|_| who_runs_this());
        let client = Client::connect(host, url.port().unwrap_or(PORT), &user);
        let url = text.trim_end_matches('/').to_owned();
        let client = client.map_err(|error| CliError::NoNode { url: url.clone(), reason: error.to_string() })?;
        Ok(Self { client, url })
    }

    fn ask<T>(&mut self, call: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, CliError> {
        call(&mut self.client).map_err(|error| match error {
            ClientError::Refused { message, .. } => CliError::Refused(message),
            ClientError::Connection(error) => CliError::NoNode { url: self.url.clone(), reason: error.to_string() },
        })
    }

    fn entry(&mut self, path: &str) -> Result<Entry, CliError> {
        let found = self.ask(|client| client.entry(path))?;
        found.ok_or_else(|| CliError::Refused(format!("expected a file or directory, but nothing is at {path}")))
    }

    /// Shows what is in a directory, a page at a time; of a file the file itself.
    fn each_page(
        &mut self,
        path: &str,
        mut show: impl FnMut(&mut Self, Vec<Entry>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut after = Vec::new();
        loop {
            let page = self.ask(|client| client.page(path, &after))?;
            let Some((entries, has_more)) = page else {
                return Err(CliError::Refused(format!("expected a file or directory, but nothing is at {path}")));
            };
            after = entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
            show(self, entries)?;
            if !has_more {
                return Ok(());
            }
        }
    }
}

/// A name that says nothing to a terminal.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The path of something in a directory; the one that was asked for has no name.
fn below(path: &str, entry: &Entry) -> String {
    match (String::from_utf8_lossy(&entry.name), path.trim_end_matches('/')) {
        (name, "") if name.is_empty() => "/".to_owned(),
        (name, path) if name.is_empty() => path.to_owned(),
        (name, path) => format!("{path}/{name}"),
    }
}

fn as_json(path: &str, entry: &Entry) -> Value {
    json!({
        "path": path,
        "id": entry.id,
        "kind": if entry.is_directory { "directory" } else { "file" },
        "length": entry.length,
        "owner": entry.owner,
        "group": entry.group,
        "mode": format!("{:o}", entry.mode),
        "has_acl": entry.has_acl,
        "modified_unix_ms": entry.mtime,
        "replication": entry.replication,
        "block_size": entry.block_size,
        "children": entry.children,
    })
}

fn ls(connection: &mut Connection, format: Format, list: &ListFiles) -> Result<(), CliError> {
    let path = &list.path;
    connection.each_page(path, |_, entries| {
        if format == Format::Json {
            return entries.iter().try_for_each(|entry| output::write_json(&as_json(&below(path, entry), entry)));
        }
        let row = |entry: &Entry| {
            let name = if entry.name.is_empty() { shown(path.as_bytes()) } else { shown(&entry.name) };
            let (owner, group) = (shown(entry.owner.as_bytes()), shown(entry.group.as_bytes()));
            vec![entry.permissions(), owner, group, entry.length.to_string(), entry.modified(), name]
        };
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        output::write(
            output::text_table(&["permissions", "owner", "group", "bytes", "modified (UTC)", "name"], &rows).as_bytes(),
        )
    })
}

/// Depth first, with as many calls as there are directories.
fn tree(connection: &mut Connection, format: Format, tree: &TreeOfFiles) -> Result<(), CliError> {
    let root = connection.entry(&tree.path)?;
    let depth_max = tree.depth.unwrap_or(u32::MAX);
    let mut open = vec![(tree.path.clone(), root, 0)];
    while let Some((path, entry, depth)) = open.pop() {
        match format {
            Format::Json => output::write_json(&as_json(&path, &entry))?,
            Format::Table => output::write(branch(&path, &entry, depth).as_bytes())?,
        }
        if !entry.is_directory || depth >= depth_max {
            continue;
        }
        let from = open.len();
        connection.each_page(&path, |_, entries| {
            open.extend(entries.into_iter().map(|entry| (below(&path, &entry), entry, depth + 1)));
            Ok(())
        })?;
        open[from..].reverse();
    }
    Ok(())
}

/// A line of a tree.
fn branch(path: &str, entry: &Entry, depth: u32) -> String {
    let name = if depth == 0 { shown(path.as_bytes()) } else { shown(&entry.name) };
    let indent = "  ".repeat(depth as usize);
    match entry.is_directory {
        true => format!("{indent}{}/\n", name.trim_end_matches('/')),
        false => format!("{indent}{name}  {}\n", entry.length),
    }
}

fn du(connection: &mut Connection, format: Format, path: &str) -> Result<(), CliError> {
    let mut rows = Vec::new();
    connection.each_page(path, |connection, entries| {
        for entry in entries {
            let path = below(path, &entry);
            let total = match entry.is_directory {
                true => connection.ask(|client| client.total(&path))?,
                false => Total {
                    files: 1,
                    directories: 0,
                    length: entry.length,
                    space: entry.length.saturating_mul(entry.replication.into()),
                },
            };
            let Total { files, directories, length, space } = total;
            match format {
                Format::Json => output::write_json(&json!({
                    "path": path, "files": files, "directories": directories, "length": length, "space": space,
                }))?,
                Format::Table => rows.push((total, shown(path.as_bytes()))),
            }
        }
        Ok(())
    })?;
    if format == Format::Table {
        rows.sort_by_key(|(total, _)| std::cmp::Reverse(total.length));
        let row = |(total, path): (Total, String)| {
            let Total { files, directories, length, space } = total;
            [length, space, files, directories].iter().map(u64::to_string).chain([path]).collect()
        };
        let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
        output::write(output::text_table(&["bytes", "of replicas", "files", "directories", "path"], &rows).as_bytes())?;
    }
    Ok(())
}

fn stat(connection: &mut Connection, format: Format, path: &str) -> Result<(), CliError> {
    let entry = connection.entry(path)?;
    let list = if entry.has_acl { connection.ask(|client| client.access_list(path))? } else { Vec::new() };
    let Value::Object(mut fields) = as_json(path, &entry) else { return Ok(()) };
    fields.insert("acl".to_owned(), json!(list));
    if format == Format::Json {
        return output::write_json(&fields);
    }
    fields.insert("permissions".to_owned(), json!(entry.permissions()));
    fields.insert("modified".to_owned(), json!(format!("{} UTC", entry.modified())));
    let plain = |value: Value| match value {
        Value::String(text) => shown(text.as_bytes()),
        Value::Array(items) => {
            let items: Vec<String> =
                items.iter().filter_map(Value::as_str).map(|item| shown(item.as_bytes())).collect();
            items.join(",")
        }
        other => other.to_string(),
    };
    let rows: Vec<Vec<String>> = fields.into_iter().map(|(name, value)| vec![name, plain(value)]).collect();
    output::write(output::text_table(&["field", "value"], &rows).as_bytes())
}

fn top(connection: &mut Connection, format: Format, top: &TopFiles) -> Result<(), CliError> {
    for number in 0..top.count.unwrap_or(u32::MAX) {
        if number > 0 {
            std::thread::sleep(Duration::from_secs(1));
        }
        let disk = connection.ask(Client::disk)?;
        let (mut writing, has_more) = connection.ask(|client| client.written(0))?;
        let is_cut = has_more || writing.len() > WRITING_MAX;
        if format == Format::Json {
            let files: Vec<Value> = writing
                .iter()
                .map(|file| json!({ "id": file.id, "path": file.path, "client": file.client, "machine": file.machine }))
                .collect();
            output::write_json(&json!({
                "capacity": disk.capacity, "used": disk.used, "remaining": disk.remaining,
                "missing_blocks": disk.missing, "writing": files, "has_more": has_more,
            }))?;
            continue;
        }
        writing.truncate(WRITING_MAX);
        let figures = [disk.capacity, disk.used, disk.remaining, disk.missing].map(|figure| figure.to_string());
        let headers = ["capacity", "used", "remaining", "missing blocks"];
        output::write(output::text_table(&headers, &[figures.to_vec()]).as_bytes())?;
        let cell = |text: &str| shown(text.as_bytes());
        let rows: Vec<Vec<String>> =
            writing.iter().map(|file| vec![cell(&file.path), cell(&file.client), cell(&file.machine)]).collect();
        output::write(output::text_table(&["being written", "client", "from"], &rows).as_bytes())?;
        output::write(if is_cut { &b"..\n\n"[..] } else { b"\n" })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> Entry {
        Entry {
            name: name.to_vec(),
            id: 1,
            is_directory: true,
            length: 0,
            mode: 0o755,
            owner: String::new(),
            group: String::new(),
            mtime: 0,
            replication: 0,
            block_size: 0,
            children: 0,
            has_acl: false,
        }
    }

    #[test]
    fn paths_are_put_together_whatever_they_begin_with() {
        let path = |directory: &str, name: &[u8]| below(directory, &entry(name));
        assert_eq!([path("/", b"a"), path("/d", b"a"), path("/d/", b"a")], ["/a", "/d/a", "/d/a"]);
        assert_eq!([path("/f", b""), path("/", b"")], ["/f", "/"]);
    }

    #[test]
    fn names_say_nothing_to_a_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\nc"), "a?[2Jb?c");
        assert_eq!(branch("/", &entry(b""), 0), "/\n");
        assert_eq!(branch("/d/a\n", &entry(b"a\n"), 1), "  a?/\n");
    }
}
