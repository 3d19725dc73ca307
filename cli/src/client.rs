//! A running node's control API, as the commands use it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use savanna_http::Problem;
use savanna_node::NodeConfig;
use savanna_streams_model::handle::HandleError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CliError;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    /// What the node's control API may ask for.
    token: Option<String>,
}

/// Why a request got no answer that can be used.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The node said no.
    Problem(Box<Problem>),
    /// Nobody answered, or something that is no node.
    NoAnswer(String),
}

impl Client {
    /// The node at `url`, or the one that the configuration would start.
    pub(crate) fn new(url: Option<&str>, config: &NodeConfig) -> Result<Self, CliError> {
        let url = match url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", std::net::SocketAddr::new(config.address, config.http_port)),
        };
        let parsed = reqwest::Url::parse(&url).ok().filter(|parsed| parsed.scheme() == "http");
        if parsed.is_none() {
            return Err(CliError::Usage(format!("--url takes http://HOST:PORT, but `{url}` came")));
        }
        // Longer than the node's own limit, so that its answer comes first.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5)).build();
        let http = http.map_err(|error| CliError::NoNode { url: url.clone(), reason: error.to_string() })?;
        let unread = |path: &Path, error: std::io::Error| {
            CliError::Usage(format!(
                "auth.token names {}, which cannot be read: {error}; check the path",
                path.display()
            ))
        };
        let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| unread(path, error));
        let token = config.auth_token.as_ref().map(read).transpose()?.map(|text| text.trim().to_owned());
        Ok(Self { http, url, token })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.long_request(method, path).timeout(Duration::from_secs(60))
    }

    /// A request that takes as long as it takes.
    pub(crate) fn long_request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}/api/v1/{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        json(send(self.request(Method::GET, path)).await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, RequestError> {
        json(send(self.request(Method::POST, path).json(body)).await?).await
    }

    /// Makes something; there is no answer but that it is there.
    pub(crate) async fn create(&self, path: &str, body: &impl Serialize) -> Result<(), RequestError> {
        send(self.request(Method::POST, path).json(body)).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), RequestError> {
        send(self.request(Method::DELETE, path)).await.map(drop)
    }

    /// The error for the user.
    pub(crate) fn explain(&self, error: RequestError) -> CliError {
        match error {
            RequestError::Problem(problem) => CliError::Refused(problem.detail),
            RequestError::NoAnswer(reason) => CliError::NoNode { url: self.url.clone(), reason },
        }
    }
}

/// A name as a part of a path.
pub(crate) fn path_part(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let encoded = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    // Dots alone would lead elsewhere.
    match name.chars().all(|character| character == '.') {
        true => name.replace('.', "%2E"),
        false => name.bytes().map(encoded).collect(),
    }
}

/// Sends a request; an answer that is an error becomes one.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, RequestError> {
    let response = request.send().await.map_err(|error| RequestError::NoAnswer(innermost(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    let problem = serde_json::from_slice(&body).unwrap_or_else(|_| no_problem(status));
    Err(RequestError::Problem(Box::new(problem)))
}

fn no_problem(status: StatusCode) -> Problem {
    Problem::new(
        status,
        "unknown",
        "An answer without explanation",
        format!("the server answered {status}; is it a node?"),
    )
}

async fn json<T: DeserializeOwned>(response: Response) -> Result<T, RequestError> {
    response.json().await.map_err(|error| RequestError::NoAnswer(innermost(&error)))
}

/// The last reason in a chain of errors: `Connection refused`, not `error sending request`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

impl From<RequestError> for HandleError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Problem(problem) => problem.into_handle_error(),
            RequestError::NoAnswer(reason) => Self::Unavailable(reason),
        }
    }
}
