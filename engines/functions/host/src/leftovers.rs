//! Folders of which nobody wants anything any more, whatever lies in them: how deep is said by those who have made them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is put aside ends so.
const ASIDE: &str = "leaving";

/// Removes a folder with all that is in it, however deep: neither a stack nor descriptors grow with that.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    loop {
        let mut is_empty = true;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            is_empty = false;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
                continue;
            }
            for inner in fs::read_dir(entry.path())? {
                let inner = inner?;
                if inner.file_type()?.is_dir() {
                    // It comes up, and is looked at then.
                    fs::rename(inner.path(), folder.join(format!("{:032x}", rand::random::<u128>())))?;
                } else {
                    fs::remove_file(inner.path())?;
                }
            }
            fs::remove_dir(entry.path())?;
        }
        if is_empty {
            return fs::remove_dir(folder);
        }
    }
}

/// Puts folders aside that a host before this one has left, and removes them beside whatever else there is to do.
pub(crate) fn put_aside(directory: &Path, names: &[&str]) -> io::Result<()> {
    for name in names {
        let aside = directory.join(format!("{name}.{:x}.{ASIDE}", rand::random::<u64>()));
        match fs::rename(directory.join(name), aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let entries: Vec<PathBuf> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    let leaving = entries.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == ASIDE));
    let leaving: Vec<PathBuf> = leaving.collect();
    if leaving.is_empty() {
        return Ok(());
    }
    let remove_all = move || {
        for folder in leaving {
            if let Err(error) = remove(&folder) {
                tracing::warn!(%error, folder = %folder.display(), "what functions have left cannot be removed; it is tried again at the next start");
            }
        }
    };
    std::thread::Builder::new().name("functions-clean".to_owned()).spawn(remove_all).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    /// A folder with so many in one another, and a file in each.
    fn deep(folder: &Path, depth: usize) {
        let (inner, outer) = (folder.with_extension("inner"), folder.with_extension("outer"));
        fs::create_dir(&inner).unwrap();
        for _ in 0..depth {
            fs::create_dir(&outer).unwrap();
            fs::write(outer.join("file"), "x").unwrap();
            fs::rename(&inner, outer.join("folder")).unwrap();
            fs::rename(&outer, &inner).unwrap();
        }
        fs::rename(inner, folder).unwrap();
    }

    #[test]
    fn a_folder_goes_however_deep_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("folder");
        deep(&folder, 3_000);
        std::os::unix::fs::symlink(directory.path(), folder.join("link")).unwrap();
        // There is no room to go in so often.
        let small = std::thread::Builder::new().stack_size(256 << 10).spawn(move || remove(&folder)).unwrap();
        small.join().unwrap().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_left_is_out_of_the_way_at_once_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        deep(&directory.path().join("tasks"), 100);
        // A host that was killed while it removed it.
        fs::create_dir_all(directory.path().join("tasks.1.leaving/folder")).unwrap();
        put_aside(directory.path(), &["tasks", "instances"]).unwrap();
        assert!(!directory.path().join("tasks").exists());
        fs::create_dir(directory.path().join("tasks")).unwrap();
        for _ in 0..600 {
            if fs::read_dir(directory.path()).unwrap().count() == 1 {
                return assert!(directory.path().join("tasks").exists());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("it has not gone within 30 s");
    }
}
