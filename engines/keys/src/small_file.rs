//! Files that are written whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Puts these bytes into the place of a file: whoever reads it finds what was there before, or all of them. The process' user alone
/// may read it: there may be passwords in it, or hashes of them.
///
/// # Errors
/// What the operating system says.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Where a link leads, and not the link, is written.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One that a crash has left may have other permissions.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_its_users_alone_and_a_link_keeps_its_target() {
        let folder = std::env::temp_dir().join(format!("savanna-small-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace(&file, b"one").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode(&file)), (b"one".to_vec(), 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode(&file)), (b"two".to_vec(), 0o600));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::remove_dir_all(&folder).unwrap();
    }
}
