//! What the name node knows, as a file for whoever looks after it (`hdfs dfsadmin -metasave`).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;

use savanna_files::Class;
use savanna_files::blocks::{Liveness, StorageFigures};

use super::figures::Figures;
use super::{AT_ONCE, Asker, Files, FilesError, Unanswered};

/// The folder of such files: nothing else is in it, so that no name does any harm.
const FOLDER: &str = "metasave";
/// Blocks that are listed; there may be more.
const BLOCKS: usize = 1_000;
/// The longest name of such a file, in bytes.
const NAME_MAX: usize = 200;

impl Files {
    /// Writes what there is to a file of this name, which may be there, for the superuser. Blocks.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn metasave(&self, asker: &Asker<'_>, name: &str) -> Result<(), Unanswered> {
        self.check_superuser(asker)?;
        self.check_read()?;
        let is_plain = |symbol: char| symbol.is_alphanumeric() || "._-".contains(symbol);
        if name.is_empty() || name.starts_with('.') || name.len() > NAME_MAX || !name.chars().all(is_plain) {
            let words = format!(
                "Expected the name of a file of at most {NAME_MAX} letters, digits, dots and lines that does not begin with a dot, came {name:?}; it is made in {FOLDER} of the folder of files"
            );
            return Err(FilesError::new(Class::IllegalArgument, words).into());
        }
        let folder = self.0.directory.join(FOLDER);
        let (beside, path) = (folder.join(format!(".{name}.new")), folder.join(name));
        let written = fs::create_dir_all(&folder)
            .and_then(|()| File::create(&beside))
            .and_then(|mut file| file.write_all(self.shown().as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| FilesError::new(Class::Io, format!("{}: {error}", path.display())).into())
    }

    /// Lines of blocks that are missing or damaged, as many as are listed and perhaps some more. Nobody waits for more than a part of all blocks.
    fn damaged(&self) -> Vec<String> {
        let (mut lines, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next.filter(|_| lines.len() <= BLOCKS) {
            let state = self.0.state.read();
            let (damaged, behind) = state.namespace.blocks.damaged(from, AT_ONCE);
            next = behind;
            lines.extend(damaged.into_iter().map(|(block, inode, is_missing)| {
                let path = state.namespace.path(inode).unwrap_or_else(|| "a file that is not in memory".to_owned());
                format!("blk_{block} {} {path}", if is_missing { "MISSING" } else { "CORRUPT" })
            }));
        }
        lines
    }

    fn shown(&self) -> String {
        let Figures { inodes, blocks, bytes, .. } = self.figures();
        let (space, stats) = (self.space(), self.stats());
        let nodes = self.nodes();
        let mut lines = self.damaged();
        let has_more = lines.len() > BLOCKS;
        lines.truncate(BLOCKS);
        let mut text = format!(
            "{inodes} files and directories, {blocks} blocks = {} total filesystem objects\n\
             Live Datanodes: {}\nDead Datanodes: {}\n\
             Metasave: Blocks waiting for reconstruction: {}\n\
             Metasave: Blocks being reconstructed: {}\n\
             Metasave: Blocks {} waiting deletion from {} datanodes.\n\
             Metasave: Blocks missing, corrupt or being written: {}{}\n",
            inodes + blocks,
            stats.nodes[0],
            stats.nodes[2],
            stats.low,
            stats.sending + stats.to_send,
            stats.leaving,
            nodes.len(),
            lines.len(),
            if has_more { " and more" } else { "" },
        );
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
        // A text takes all that is written to it.
        let _ = writeln!(
            text,
            "Metasave: Number of datanodes: {}\n{} IN {}(capacity) {bytes}(used) {}(remaining)",
            1 + nodes.len(),
            self.0.identity.cluster.trim_start_matches("CID-"),
            space.capacity,
            space.remaining
        );
        for node in nodes {
            let sum = |what: fn(&StorageFigures) -> u64| node.storages.iter().map(what).fold(0, u64::saturating_add);
            let [capacity, used, remaining] = [sum(|it| it.capacity), sum(|it| it.used), sum(|it| it.remaining)];
            let state = if node.liveness == Liveness::Dead { "DEAD" } else { "IN" };
            let name = node.registration.uuid;
            let _ = writeln!(text, "{name} {state} {capacity}(capacity) {used}(used) {remaining}(remaining)");
        }
        text
    }
}
