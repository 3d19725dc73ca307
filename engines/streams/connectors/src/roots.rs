//! The folders that tables may read and write.
//!
//! A path is followed as the operating system follows it, through links and `..`, as far as it exists; what it means then must lie
//! below one of the folders.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use savanna_streams_api::{Result, StreamError};

/// The folders that tables may use.
#[derive(Clone, Debug, Default)]
pub struct Roots(Option<Arc<Folders>>);

#[derive(Debug)]
struct Folders {
    allowed: Vec<PathBuf>,
    /// URLs of folders in buckets.
    buckets: Vec<String>,
    kept_out: Vec<PathBuf>,
    hint: String,
}

impl Roots {
    /// All of them: the process is its user's own.
    pub fn anywhere() -> Self {
        Self(None)
    }

    /// What lies below the folders `allowed`, which may be URLs of those in buckets, and not below those that are `kept_out`; of two that
    /// lie in each other, the inner one counts. `hint` says in errors how to allow more.
    pub fn below(allowed: Vec<PathBuf>, kept_out: Vec<PathBuf>, hint: impl Into<String>) -> Self {
        let url = |folder: &PathBuf| {
            folder.to_str().filter(|text| is_url(text)).map(|url| url.trim_end_matches('/').to_owned())
        };
        let buckets = allowed.iter().filter_map(url).collect();
        let allowed = allowed.into_iter().filter(|folder| url(folder).is_none()).collect();
        Self(Some(Arc::new(Folders { allowed, buckets, kept_out, hint: hint.into() })))
    }

    /// Whether a table may use a path, or the URL of a folder in a bucket.
    ///
    /// # Errors
    /// [`StreamError::Denied`] if it may not.
    pub fn check(&self, path: &Path) -> Result<()> {
        let Some(folders) = &self.0 else { return Ok(()) };
        if let Some(url) = path.to_str().filter(|text| is_url(text)) {
            return folders.check_url(url);
        }
        let path = path.to_str().and_then(local).unwrap_or(path);
        let depth = |roots: &[PathBuf]| {
            let place = resolved(path)?;
            let inside = roots.iter().filter_map(|root| resolved(root)).filter(|root| place.starts_with(root));
            inside.map(|root| root.components().count()).max()
        };
        match depth(&folders.allowed) {
            Some(allowed) if Some(allowed) > depth(&folders.kept_out) => Ok(()),
            _ => Err(folders.denied(path)),
        }
    }

    /// Whether a table may use what a pattern can match; each match is checked as well.
    pub(crate) fn check_pattern(&self, pattern: &str) -> Result<()> {
        let fixed: PathBuf = Path::new(pattern)
            .components()
            .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']))
            .collect();
        if self.0.is_some() && Path::new(pattern).components().skip(fixed.components().count()).any(is_up) {
            return Err(StreamError::invalid(format!("'path' = '{pattern}': '..' cannot stand behind a wildcard")));
        }
        self.check(if fixed.as_os_str().is_empty() { Path::new(".") } else { &fixed })
    }
}

impl Folders {
    fn check_url(&self, url: &str) -> Result<()> {
        let lies_below = |root: &String| {
            url.strip_prefix(root.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let url = url.strip_suffix('/').unwrap_or(url);
        if url.split('/').skip(2).any(|part| matches!(part, "" | "." | "..")) {
            return Err(StreamError::invalid(format!("{url}: a part of a URL cannot be empty, '.' or '..'")));
        }
        if self.buckets.iter().any(lies_below) { Ok(()) } else { Err(self.denied(Path::new(url))) }
    }

    fn denied(&self, path: &Path) -> StreamError {
        let folders = self.allowed.iter().map(|folder| folder.display().to_string());
        let allowed: Vec<String> = folders.chain(self.buckets.iter().cloned()).collect();
        StreamError::Denied {
            message: format!(
                "{} lies outside of the folders that tables may use: {}; {}",
                path.display(),
                allowed.join(", "),
                self.hint
            ),
        }
    }
}

/// The folder of a file system that a URL names, such as `file:///srv/a`: its letters are those of the path.
pub fn local(url: &str) -> Option<&Path> {
    url.strip_prefix("file://").map(Path::new).filter(|path| path.is_absolute())
}

/// A path that may be written as such a URL.
pub(crate) fn as_path(text: &str) -> &str {
    local(text).and_then(Path::to_str).unwrap_or(text)
}

/// Whether a path is the URL of a folder in a bucket.
pub fn is_url(path: &str) -> bool {
    path.starts_with("s3://")
}

fn is_up(part: Component<'_>) -> bool {
    part == Component::ParentDir
}

/// The path without links, as far as it exists; none if that cannot be told.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    for there in path.ancestors() {
        if there.symlink_metadata().is_err() {
            continue;
        }
        // A link to nothing is there, and means nothing yet.
        let there_really = there.canonicalize().ok()?;
        let missing = path.strip_prefix(there).ok()?;
        return (!missing.components().any(is_up)).then(|| there_really.join(missing));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_lies_below_a_root_may_be_used() {
        let all = tempfile::tempdir().unwrap();
        let (root, data, out) = (all.path().join("root"), all.path().join("root/data"), all.path().join("out"));
        for folder in [&root, &data, &data.join("files"), &out] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(out.join("secret"), "").unwrap();
        symlink(&out, root.join("link")).unwrap();
        symlink(out.join("nothing"), root.join("dangling")).unwrap();
        symlink(&root, all.path().join("way-in")).unwrap();
        let roots =
            Roots::below(vec![root.clone(), data.join("files")], vec![data.clone()], "start it with --files DIR");
        let check = |path: PathBuf| roots.check(&path);
        for inside in
            ["root", "root/a.csv", "root/new/folder", "root/data/files/a.csv", "way-in/a.csv", "root/data/../a.csv"]
        {
            check(all.path().join(inside)).unwrap_or_else(|e| panic!("{inside}: {e}"));
        }
        for outside in [
            "out/secret",
            "rooted",
            "root/../out/secret",
            "root/link/secret",
            "root/link/new",
            "root/dangling",
            "root/data/keys",
            "root/new/../../out/secret",
            "root/data",
        ] {
            let error = check(all.path().join(outside)).expect_err(outside);
            assert!(matches!(error, StreamError::Denied { .. }), "{error:?}");
        }
        let error = check(out.join("secret")).unwrap_err().to_string();
        assert!(error.contains(root.to_str().unwrap()) && error.ends_with("start it with --files DIR"), "{error}");
        let pattern = |pattern: &str| roots.check_pattern(all.path().join(pattern).to_str().unwrap());
        assert!(pattern("root/*.csv").is_ok());
        assert!(
            pattern("out/*").is_err() && pattern("*/secret").is_err() && pattern("root/*/../../out/secret").is_err()
        );
        assert!(Roots::anywhere().check(&out).is_ok());
        let url = |path: &str| roots.check(Path::new(&format!("file://{}", all.path().join(path).display())));
        assert!(url("root/new").is_ok() && url("way-in").is_ok());
        assert!(url("out/secret").is_err() && url("root/link/new").is_err() && url("root/data").is_err());
    }

    #[test]
    fn only_folders_of_buckets_that_were_named_may_be_used() {
        let roots = Roots::below(vec!["/srv".into(), "s3://shop/out/".into()], Vec::new(), "start it with --files DIR");
        for inside in ["s3://shop/out", "s3://shop/out/", "s3://shop/out/a/b"] {
            roots.check(Path::new(inside)).unwrap_or_else(|e| panic!("{inside}: {e}"));
        }
        for outside in ["s3://shop", "s3://shop/", "s3://shop/output", "s3://other/out", "s3://shop/ou"] {
            let error = roots.check(Path::new(outside)).expect_err(outside).to_string();
            assert!(error.contains("s3://shop/out;") && error.contains("/srv"), "{error}");
        }
        for odd in ["s3://shop/out/../secret", "s3://shop/out/./a", "s3://shop/out//a", "s3://shop/out/.."] {
            roots.check(Path::new(odd)).expect_err(odd);
        }
        assert!(roots.check(Path::new("s3:/shop/out")).is_err(), "it is no URL");
        assert!(Roots::anywhere().check(Path::new("s3://shop")).is_ok());
    }
}
