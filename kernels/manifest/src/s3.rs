//! Amazon S3 and stores with its API.
//!
//! Versions are created with `If-None-Match: *`. Opening a manifest checks that the store honours it.

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;

/// Where a bucket is. Credentials come from the environment, as the AWS tools read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The region; `None` for that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// The URL of a store that is not Amazon's, such as `http://127.0.0.1:5000`. Plain HTTP is allowed here.
    pub endpoint: Option<String>,
}

impl Bucket {
    /// The bucket of a URL such as `s3://bucket/some/path`, and the path in it; `None` if it is no such URL.
    #[must_use]
    pub fn of_url(url: &str) -> Option<(Self, Path)> {
        let (name, path) = url.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let named = !name.is_empty() && name.bytes().all(plain);
        let path = Path::parse(path).ok().filter(|_| named)?;
        Some((Self { name: name.to_owned(), ..Self::default() }, path))
    }

    /// A client of the bucket. Asks nothing yet.
    ///
    /// # Errors
    /// If the name or the configuration in the environment is not valid.
    pub fn connect(&self) -> object_store::Result<AmazonS3> {
        self.builder().build()
    }

    /// The client's configuration, for settings beyond those of [`Bucket`].
    #[must_use]
    pub fn builder(&self) -> AmazonS3Builder {
        let mut builder =
            AmazonS3Builder::from_env().with_bucket_name(&self.name).with_conditional_put(S3ConditionalPut::ETagMatch);
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_and_a_path() {
        let of = |url| Bucket::of_url(url).map(|(bucket, path)| format!("{} {path}", bucket.name));
        assert_eq!(of("s3://shop/some/where").as_deref(), Some("shop some/where"));
        assert_eq!(of("s3://shop").as_deref(), Some("shop "));
        assert_eq!(of("s3://shop/").as_deref(), Some("shop "));
        for url in
            ["", "shop", "/tmp/shop", "s3:///path", "s3://a b/c", "s3://shop/a//b", "s3://shop/../b", "http://shop"]
        {
            assert_eq!(of(url), None, "{url}");
        }
    }
}
