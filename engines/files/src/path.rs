//! Paths as clients write them.

use crate::error::{Class, FilesError};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path, in bytes.
pub const PATH_MAX: usize = 8_000;
/// The most names in a path.
pub const DEPTH_MAX: usize = 1_000;

/// The names in an absolute path; none in that of the root.
///
/// # Errors
/// [`Class::InvalidPath`].
pub fn names(path: &str) -> Result<Vec<&[u8]>, FilesError> {
    let invalid = || FilesError::new(Class::InvalidPath, format!("Invalid path name {path}"));
    let rest = path.strip_prefix('/').ok_or_else(invalid)?;
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains([':', '\0']);
    if !rest.split('/').all(is_name) {
        return Err(invalid());
    }
    Ok(rest.split('/').map(str::as_bytes).collect())
}

/// Whether something may be made at a path.
///
/// # Errors
/// [`Class::NameTooLong`], [`Class::InvalidPath`].
pub fn check_new(path: &str, names: &[&[u8]]) -> Result<(), FilesError> {
    if names.first().is_some_and(|name| *name == b".reserved") {
        return Err(FilesError::new(Class::InvalidPath, format!("{path}: .reserved is a reserved name of the root")));
    }
    if path.len() > PATH_MAX || names.len() > DEPTH_MAX {
        let limits = format!("Pathname too long.  Limit {PATH_MAX} characters, {DEPTH_MAX} levels.");
        return Err(FilesError::new(Class::InvalidPath, limits));
    }
    match names.iter().find(|name| name.len() > NAME_MAX) {
        Some(name) => Err(FilesError::new(
            Class::NameTooLong,
            format!(
                "The maximum path component name limit of {} in directory {path} is exceeded: limit={NAME_MAX} length={}",
                String::from_utf8_lossy(name),
                name.len()
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_has_names_only() {
        assert_eq!(names("/").unwrap().len(), 0);
        assert_eq!(names("/a/%_ü/").unwrap(), [&b"a"[..], "%_ü".as_bytes()]);
        for path in ["", "a", "//", "/a//b", "/a/./b", "/..", "/a:b", "/a\0"] {
            assert_eq!(names(path).unwrap_err().class, Class::InvalidPath, "{path:?}");
        }
    }

    #[test]
    fn what_is_made_has_limits() {
        let refused = |path: &str| check_new(path, &names(path).unwrap()).map_err(|error| error.class).unwrap_err();
        assert_eq!(refused(&format!("/{}", "x".repeat(256))), Class::NameTooLong);
        assert_eq!(refused(&"/x".repeat(1_001)), Class::InvalidPath);
        assert_eq!(refused("/.reserved/x"), Class::InvalidPath);
        let longest = format!("/{}", "x".repeat(255));
        check_new(&longest, &names(&longest).unwrap()).unwrap();
        check_new(&"/x".repeat(1_000), &names(&"/x".repeat(1_000)).unwrap()).unwrap();
    }
}
