//! Which files a path means.

use std::fs;
use std::path::{Path, PathBuf};

use savanna_streams_api::{Result, StreamError};

use crate::roots::Roots;

/// The files that `path` means, in the order in which they are read: itself, the files of a directory by name, or what a
/// glob matches. Names that begin with `.` or `_` are left out: they are being written, or are no data.
///
/// # Errors
/// One of them may not be used, or they cannot be listed.
pub(crate) fn files(path: &str, roots: &Roots) -> Result<Vec<PathBuf>> {
    let failed = |e: &dyn std::fmt::Display| StreamError::io(format!("list the files of {path}"), e);
    let mut found = Vec::new();
    roots.check_pattern(path)?;
    if Path::new(path).is_dir() {
        for entry in fs::read_dir(path).map_err(|e| failed(&e))? {
            found.push(entry.map_err(|e| failed(&e))?.path());
        }
    } else if Path::new(path).exists() {
        return Ok(vec![path.into()]);
    } else if is_glob(path) {
        let matches = glob::glob(path).map_err(|e| {
            StreamError::invalid(format!("'path' = '{path}': expected a file, directory or pattern, got: {e}"))
        })?;
        for entry in matches {
            found.push(entry.map_err(|e| failed(&e))?);
        }
    }
    found.retain(|file| is_data(file) && file.is_file());
    found.sort();
    found.iter().try_for_each(|file| roots.check(file))?;
    Ok(found)
}

/// The files in folders of a directory, so many folders deep, in the order in which they are read: by their paths.
pub(crate) fn files_in_folders(path: &Path, depth: usize, roots: &Roots) -> Result<Vec<PathBuf>> {
    roots.check(path)?;
    let failed = |e: std::io::Error| StreamError::io(format!("list the folder {}", path.display()), &e);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        if is_data(&entry) && entry.is_dir() {
            found.extend(files_in_folders(&entry, depth.saturating_sub(1), roots)?);
        } else if is_data(&entry) && depth == 0 {
            roots.check(&entry)?;
            found.push(entry);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a path is a pattern.
pub(crate) fn is_glob(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

fn is_data(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| !name.as_encoded_bytes().starts_with(b".") && !name.as_encoded_bytes().starts_with(b"_"))
}

/// That nothing is there to read.
pub(crate) fn nothing_there(path: &str) -> StreamError {
    let cause = if is_glob(path) { "no file matches the pattern" } else { "there is no such file, or no file in it" };
    StreamError::io(format!("read {path}"), &cause)
}
