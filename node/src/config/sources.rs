//! Reading the file, the environment and the flags.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cluster::ETCD_PASSWORD;

use super::{ConfigError, SETTINGS, Source, Sourced, nearest};

const PREFIX: &str = "SAVANNA_";

/// The variable that names the file.
const FILE_VARIABLE: &str = "SAVANNA_CONFIG";

/// Variables with our prefix that are no settings: of the Makefile, and of other parts of the command.
const OTHER_VARIABLES: [&str; 8] = [
    FILE_VARIABLE,
    "SAVANNA_NO_INSTALL",
    "SAVANNA_HISTORY",
    "SAVANNA_CA_FILE",
    "SAVANNA_TOKEN",
    "SAVANNA_USER",
    "SAVANNA_PASSWORD",
    ETCD_PASSWORD,
];

/// What Kubernetes sets in every pod beside a service of the name `savanna`.
const KUBERNETES: [&str; 3] = ["SAVANNA_PORT", "SAVANNA_SERVICE_HOST", "SAVANNA_SERVICE_PORT"];

/// Where settings come from, lowest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file's name and text.
    file: Option<(PathBuf, FileText)>,
    environment: Vec<(String, String)>,
    flags: Vec<(String, Sourced)>,
}

#[derive(Clone, Debug)]
enum FileText {
    Given(String),
    /// To be read; it need not exist unless somebody named it.
    OnDisk {
        named: bool,
    },
}

impl Sources {
    /// Only defaults.
    pub fn none() -> Self {
        Self::default()
    }

    /// The file of this process (`config`, else `SAVANNA_CONFIG`, else `savanna.toml` where there is one) and its
    /// environment.
    pub fn process(config: Option<PathBuf>) -> Self {
        let named = config.or_else(|| std::env::var_os(FILE_VARIABLE).map(PathBuf::from));
        let file = match named {
            Some(path) => (path, FileText::OnDisk { named: true }),
            None => (PathBuf::from("savanna.toml"), FileText::OnDisk { named: false }),
        };
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { file: Some(file), ..Self::default() }.environment(texts)
    }

    /// A file's text.
    #[must_use]
    pub fn text(mut self, path: impl Into<PathBuf>, text: &str) -> Self {
        self.file = Some((path.into(), FileText::Given(text.to_owned())));
        self
    }

    /// Variables; those without the prefix are left out.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        self.environment.sort();
        self
    }

    /// A flag that sets `key`. A later one counts.
    #[must_use]
    pub fn flag(mut self, key: &str, value: &str, flag: &str) -> Self {
        let source = Source::Flag(flag.to_owned());
        self.flags.push((key.to_owned(), Sourced { value: value.to_owned(), source }));
        self
    }

    /// Every key set, lowest source first. Keys of the file and of flags need not exist.
    pub(super) fn read(&self) -> Result<Vec<(String, Sourced)>, ConfigError> {
        let mut all = Vec::new();
        if let Some((path, text)) = &self.file
            && let Some(text) = text.read(path)?
        {
            read_toml(path, &text, &mut all)?;
        }
        for (name, value) in &self.environment {
            if let Some(key) = key_of_variable(name)? {
                let source = Source::Environment(name.clone());
                all.push((key.to_owned(), Sourced { value: value.clone(), source }));
            }
        }
        all.extend(self.flags.iter().cloned());
        Ok(all)
    }
}

impl FileText {
    fn read(&self, path: &Path) -> Result<Option<String>, ConfigError> {
        match self {
            Self::Given(text) => Ok(Some(text.clone())),
            Self::OnDisk { named } => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => Ok(None),
                Err(error) => Err(ConfigError::Read { path: path.to_owned(), reason: error.to_string() }),
            },
        }
    }
}

fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "_"))
}

/// The setting that a variable sets, or none if the variable is somebody else's.
fn key_of_variable(name: &str) -> Result<Option<&'static str>, ConfigError> {
    if let Some(spec) = SETTINGS.iter().find(|spec| variable_of(spec.key) == name) {
        return Ok(Some(spec.key));
    }
    let kubernetes =
        KUBERNETES.contains(&name) || name.starts_with("SAVANNA_PORT_") || name.starts_with("SAVANNA_SERVICE_PORT_");
    if kubernetes || OTHER_VARIABLES.contains(&name) {
        return Ok(None);
    }
    let names: Vec<String> = SETTINGS.iter().map(|spec| variable_of(spec.key)).collect();
    let lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let near: Vec<String> = nearest(name, lower.iter().map(String::as_str)).iter().map(|n| n.to_uppercase()).collect();
    let hint = match near.as_slice() {
        [] => "unset it, or see `savanna config show`".to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    let place = Source::Environment(name.to_owned());
    let key = name.trim_start_matches(PREFIX).to_lowercase();
    Err(ConfigError::Unknown { place, key, hint })
}

fn read_toml(path: &Path, text: &str, all: &mut Vec<(String, Sourced)>) -> Result<(), ConfigError> {
    let line_of = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| ConfigError::Toml {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(span.start)),
        reason: error.message().to_owned(),
    })?;
    read_table(path, "", table.get_ref(), &line_of, all)
}

fn read_table(
    path: &Path,
    prefix: &str,
    table: &DeTable<'_>,
    line_of: &dyn Fn(usize) -> usize,
    all: &mut Vec<(String, Sourced)>,
) -> Result<(), ConfigError> {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        let line = line_of(name.span().start);
        let source = Source::File { path: path.to_owned(), line };
        if let DeValue::Table(inner) = value.get_ref() {
            read_table(path, &format!("{key}."), inner, line_of, all)?;
            continue;
        }
        let text = scalar(value).ok_or_else(|| ConfigError::Value {
            place: source.clone(),
            key: "a setting",
            expected: "a text, a number, true or false, or a list of texts".to_owned(),
            value: key.clone(),
        })?;
        all.push((key, Sourced { value: text, source }));
    }
    Ok(())
}

/// The text of a value; a list becomes its parts with commas between them.
fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Array(values) => {
            let parts: Option<Vec<String>> = values.iter().map(scalar).collect();
            Some(parts?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
