//! What clients ask for, in the form of Lambda's own JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// What is said beside what is offered.
type Rest = Map<String, Value>;

/// Where code is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ZipSource {
    /// The zip itself, in base64.
    pub zip_file: Option<String>,
    /// Savanna's own: code that a function has already, by the `CodeSha256` that is shown of it.
    pub savanna_code_sha256: Option<String>,
    /// Anything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Variables of the environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Environment {
    /// By name.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// A place that events go to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Target {
    /// Its ARN; none or an empty one for nowhere.
    pub target_arn: Option<String>,
}

/// Megabytes of `/tmp`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Storage {
    /// So many.
    pub size: i64,
}

/// `CreateFunction`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateFunction {
    /// A name or an ARN.
    pub function_name: String,
    /// Its zip.
    pub code: ZipSource,
    /// Whether there is a version at once.
    #[serde(default)]
    pub publish: bool,
    /// Words of the client.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The form of its code.
    pub package_type: Option<String>,
    /// Where it runs.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// What it runs under.
    #[serde(flatten)]
    pub settings: UpdateConfiguration,
}

/// `UpdateFunctionConfiguration`, and the part of `CreateFunction` that is the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UpdateConfiguration {
    /// What runs the code.
    pub runtime: Option<String>,
    /// The role.
    pub role: Option<String>,
    /// What is called.
    pub handler: Option<String>,
    /// In words.
    pub description: Option<String>,
    /// Seconds.
    pub timeout: Option<i64>,
    /// Megabytes.
    pub memory_size: Option<i64>,
    /// Variables.
    pub environment: Option<Environment>,
    /// Where events go that did not succeed.
    pub dead_letter_config: Option<Target>,
    /// Megabytes of `/tmp`.
    pub ephemeral_storage: Option<Storage>,
    /// Only if it is this one still.
    pub revision_id: Option<String>,
    /// Anything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// `UpdateFunctionCode`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UpdateCode {
    /// Whether there is a version at once.
    #[serde(default)]
    pub publish: bool,
    /// Whether it is only looked at.
    #[serde(default)]
    pub dry_run: bool,
    /// Where it runs.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Only if it is this one still.
    pub revision_id: Option<String>,
    /// Its zip.
    #[serde(flatten)]
    pub code: ZipSource,
}

/// `PublishVersion`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Publish {
    /// Only if the code is this one still.
    pub code_sha256: Option<String>,
    /// Only if it is this one still.
    pub revision_id: Option<String>,
    /// In words.
    pub description: Option<String>,
}

/// Where an alias goes beside its version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Routing {
    /// A version and its share, 0 to 1.
    #[serde(default)]
    pub additional_version_weights: BTreeMap<String, f64>,
}

/// `CreateAlias` and `UpdateAlias`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AliasRequest {
    /// Its name, of a new one.
    #[serde(default)]
    pub name: String,
    /// A version.
    pub function_version: Option<String>,
    /// In words.
    pub description: Option<String>,
    /// Another version.
    pub routing_config: Option<Routing>,
    /// Only if it is this one still.
    pub revision_id: Option<String>,
}

/// `PutFunctionConcurrency`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ConcurrencyRequest {
    /// So many.
    pub reserved_concurrent_executions: i64,
}

/// Who is told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Destination {
    /// Its ARN.
    pub destination: Option<String>,
}

/// Who is told of what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DestinationConfig {
    /// Of success.
    pub on_success: Option<Destination>,
    /// Of the opposite.
    pub on_failure: Option<Destination>,
}

/// `PutFunctionEventInvokeConfig` and `UpdateFunctionEventInvokeConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EventConfigRequest {
    /// 0 to 2.
    pub maximum_retry_attempts: Option<i64>,
    /// Seconds.
    pub maximum_event_age_in_seconds: Option<i64>,
    /// Who is told.
    pub destination_config: Option<DestinationConfig>,
}
