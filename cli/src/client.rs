//! A running node's control API, as the commands use it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Method, RequestBuilder, Response, StatusCode, Url};
use savanna_http::Problem;
use savanna_identity::{Login, Token, read_password};
use savanna_node::NodeConfig;
use savanna_streams_api::handle::HandleError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Trust;
use crate::error::CliError;

/// The variable that has the token.
const TOKEN_VARIABLE: &str = "SAVANNA_TOKEN";
/// The variable that names a user.
const USER_VARIABLE: &str = "SAVANNA_USER";
/// The variable that has the user's password.
const PASSWORD_VARIABLE: &str = "SAVANNA_PASSWORD";

/// How long a request may take: longer than the node's own limit, so that its answer comes first.
const REQUEST_TIME: Duration = Duration::from_secs(60);

/// What requests carry.
#[derive(Clone, Debug)]
enum Credentials {
    Token(Token),
    Login(Login),
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    /// What the node's control API may ask for.
    credentials: Option<Credentials>,
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
    pub(crate) fn new(url: Option<&str>, trust: &Trust, config: &NodeConfig) -> Result<Self, CliError> {
        let is_own = url.is_none();
        let url = url.map_or_else(|| own_url(config), |url| url.trim_end_matches('/').to_owned());
        let parsed = Url::parse(&url).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let Some(parsed) = parsed else {
            return Err(CliError::Usage(format!(
                "--url takes http://HOST:PORT or https://HOST:PORT, but `{url}` came"
            )));
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let message = "--url takes no user or password: use --user with --password-file, or --token-file";
            return Err(CliError::Usage(message.to_owned()));
        }
        let mut http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5));
        if parsed.scheme() == "https" {
            for certificate in authorities(trust, config)? {
                http = http.add_root_certificate(certificate);
            }
        }
        http = http.tls_built_in_root_certs(parsed.scheme() == "https" && trust.ca_file.is_none());
        let http = http.build().map_err(|error| CliError::NoNode { url: url.clone(), reason: reason(&error) })?;
        Ok(Self { http, url, credentials: credentials(trust, config, is_own)? })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.long_request(method, path).timeout(REQUEST_TIME)
    }

    /// A request that takes as long as it takes.
    pub(crate) fn long_request(&self, method: Method, path: &str) -> RequestBuilder {
        self.identified(self.http.request(method, format!("{}/api/v1/{path}", self.url)))
    }

    /// A request with what the node may ask for.
    fn identified(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.credentials {
            Some(Credentials::Token(token)) => request.bearer_auth(token.reveal()),
            Some(Credentials::Login(login)) => request.basic_auth(&login.name, Some(&login.password)),
            None => request,
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        json(send(self.request(Method::GET, path)).await?).await
    }

    /// Metrics of the node, or of another one, as text.
    pub(crate) async fn metrics(&self, node: Option<&str>) -> Result<String, RequestError> {
        let request = match node {
            Some(_) => self.request(Method::GET, &of_node(node, "metrics")),
            None => self.identified(self.http.get(format!("{}/metrics", self.url))).timeout(REQUEST_TIME),
        };
        send(request).await?.text().await.map_err(|error| RequestError::NoAnswer(reason(&error)))
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, RequestError> {
        json(send(self.request(Method::POST, path).json(body)).await?).await
    }

    /// As [`post`](Self::post), for what takes as long as it takes.
    pub(crate) async fn post_long<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, RequestError> {
        json(send(self.long_request(Method::POST, path).json(body)).await?).await
    }

    /// Says that something is so from now on.
    pub(crate) async fn put(&self, path: &str) -> Result<(), RequestError> {
        send(self.request(Method::PUT, path)).await.map(drop)
    }

    /// Makes something; there is no answer but that it is there.
    pub(crate) async fn create(&self, path: &str, body: &impl Serialize) -> Result<(), RequestError> {
        send(self.request(Method::POST, path).json(body)).await.map(drop)
    }

    /// As [`create`](Self::create), for what takes as long as it takes.
    pub(crate) async fn create_long(&self, path: &str, body: &impl Serialize) -> Result<(), RequestError> {
        send(self.long_request(Method::POST, path).json(body)).await.map(drop)
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

/// The control API of the node that the configuration would start.
fn own_url(config: &NodeConfig) -> String {
    let scheme = if config.http_tls.is_some() { "https" } else { "http" };
    let address = match config.address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    format!("{scheme}://{}", SocketAddr::new(address, config.http_port))
}

/// Whose signature on the node's certificate is trusted beside those that the machine trusts.
fn authorities(trust: &Trust, config: &NodeConfig) -> Result<Vec<Certificate>, CliError> {
    let (path, setting): (&Path, _) = match (&trust.ca_file, &config.http_tls) {
        (Some(path), _) => (path, "--ca-file (or SAVANNA_CA_FILE)"),
        (None, Some(files)) => (&files.certificates, "http.tls_cert"),
        (None, None) => return Ok(Vec::new()),
    };
    let unread = |reason: &dyn std::fmt::Display| {
        CliError::Usage(format!(
            "{setting} takes a PEM file with certificates, but {} is not one: {reason}",
            path.display()
        ))
    };
    let text = std::fs::read(path).map_err(|error| unread(&error))?;
    match Certificate::from_pem_bundle(&text) {
        Ok(certificates) if certificates.is_empty() => Err(unread(&"there are no certificates in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unread(&innermost(&error))),
    }
}

/// What requests carry, if anything: flags count before variables, and these before the configuration. Nobody's password is
/// sent to another node than that of the configuration, unless the user is named.
fn credentials(trust: &Trust, config: &NodeConfig, is_own: bool) -> Result<Option<Credentials>, CliError> {
    let given = |text: &str, place: &str| match Token::parse(text) {
        Some(token) => Ok(Some(Credentials::Token(token))),
        None => Err(CliError::Usage(format!("{place} takes {}", Token::EXPECTED))),
    };
    let read = |path: &Path, place: &str| match Token::read(path) {
        Ok(token) => Ok(Some(Credentials::Token(token))),
        Err(error) => Err(CliError::Usage(format!("{place}: {error}"))),
    };
    if let Some(text) = &trust.token {
        return given(text, "--token");
    }
    if let Some(path) = &trust.token_file {
        return read(path, "--token-file");
    }
    let [user, token] = [USER_VARIABLE, TOKEN_VARIABLE].map(|name| std::env::var(name).ok());
    match (&trust.user, token, user, &config.auth_token, &config.auth_users) {
        (Some(name), ..) => login_of(name, trust, config).map(Some),
        (None, Some(text), ..) => given(&text, TOKEN_VARIABLE),
        (None, None, Some(name), ..) => login_of(&name, trust, config).map(Some),
        (None, None, None, Some(path), _) => read(path, "auth.token"),
        (None, None, None, None, Some(path)) if is_own => login_in(path, None).map(Some),
        (None, None, None, None, _) => Ok(None),
    }
}

/// A user with its password.
fn login_of(name: &str, trust: &Trust, config: &NodeConfig) -> Result<Credentials, CliError> {
    let password = match (&trust.password_file, std::env::var(PASSWORD_VARIABLE), &config.auth_users) {
        (Some(path), ..) => {
            read_password(path).map_err(|error| CliError::Usage(format!("--password-file: {error}")))?
        }
        (None, Ok(password), _) => password,
        (None, Err(_), Some(path)) => return login_in(path, Some(name)),
        (None, Err(_), None) => {
            return Err(CliError::Usage(format!(
                "expected the password of user {name}: give it with --password-file FILE, {PASSWORD_VARIABLE}, or \
                 auth.users in the configuration"
            )));
        }
    };
    Ok(Credentials::Login(Login { name: name.to_owned(), password }))
}

/// A user, or the first one, in the file of the node's users.
fn login_in(path: &Path, name: Option<&str>) -> Result<Credentials, CliError> {
    let login = Login::read(path, name).map_err(|error| CliError::Usage(format!("auth.users: {error}")))?;
    Ok(Credentials::Login(login))
}

/// Where the control API has what a node tells of itself: another one, if it has a name.
pub(crate) fn of_node(node: Option<&str>, what: &str) -> String {
    node.map_or_else(|| what.to_owned(), |node| format!("nodes/{}/{what}", path_part(node)))
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
    let response = request.send().await.map_err(|error| RequestError::NoAnswer(reason(&error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    let mut problem: Problem = serde_json::from_slice(&body).unwrap_or_else(|_| no_problem(status));
    if status == StatusCode::UNAUTHORIZED {
        problem.detail = format!(
            "the node asks for its token or a user, and none came or a wrong one; give --token-file FILE ({TOKEN_VARIABLE}), or \
             --user NAME ({USER_VARIABLE}) with --password-file FILE ({PASSWORD_VARIABLE}), or auth.token or auth.users in \
             the configuration"
        );
    }
    Err(RequestError::Problem(Box::new(problem)))
}

fn no_problem(status: StatusCode) -> Problem {
    Problem::new(
        status,
        "unknown",
        "An answer without an explanation",
        format!("the server answered {status}; is it a node?"),
    )
}

async fn json<T: DeserializeOwned>(response: Response) -> Result<T, RequestError> {
    response.json().await.map_err(|error| RequestError::NoAnswer(reason(&error)))
}

/// Why there was no answer, and what to do about it where that is not plain.
fn reason(error: &reqwest::Error) -> String {
    let innermost = innermost(error);
    let advice = match &innermost {
        text if text.contains("CaUsedAsEndEntity") => {
            "; the node needs a certificate of its own, not of an authority: make it with basicConstraints=CA:FALSE"
        }
        text if text.contains("not valid for name") => "; name the node in --url as its certificate does",
        text if text.contains("invalid peer certificate") => {
            "; name the certificate that signed the node's with --ca-file FILE"
        }
        text if text.contains("InvalidContentType") => "; it speaks no TLS there: use http:// in --url",
        text if text.contains("connection closed before message completed") || text.contains("invalid HTTP") => {
            "; if it speaks TLS there, use https:// in --url"
        }
        _ => "",
    };
    innermost + advice
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
