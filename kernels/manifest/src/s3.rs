//! Amazon S3 and stores with its API.
//!
//! Versions are created with `If-None-Match: *`. Opening a manifest checks that the store honours it.

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};

/// Where a bucket is. Credentials come from the environment, as the AWS tools read them.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The region; `None` for that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// The URL of a store that is not Amazon's, such as `http://127.0.0.1:5000`. Plain HTTP is allowed here.
    pub endpoint: Option<String>,
}

impl Bucket {
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
