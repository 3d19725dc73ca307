//! Lambda's Runtime API over one connection: HTTP/1.1, as far as that API needs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

/// Bytes of a line of a head, and lines of it.
const LINE_MAX: u64 = 16 << 10;
const LINES_MAX: usize = 100;
/// Bytes of a call.
const BODY_MAX: usize = 64 << 20;

/// Why the program cannot go on.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its id, for the answer.
    pub(crate) request: String,
    pub(crate) payload: Vec<u8>,
}

/// The API at one address.
pub(crate) struct RuntimeApi {
    address: String,
    connection: Option<BufReader<TcpStream>>,
}

/// A response: status, the request that it is about, body.
struct Response {
    status: u16,
    request: Option<String>,
    body: Vec<u8>,
    closes: bool,
}

impl RuntimeApi {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), connection: None }
    }

    /// Waits for the next call.
    ///
    /// # Errors
    /// The API does not answer as it should.
    pub(crate) fn next(&mut self) -> Result<Call, Failure> {
        let Response { status, request, body, .. } = self.ask("GET", "invocation/next", &[])?;
        match (status, request) {
            (200, Some(request)) => Ok(Call { request, payload: body }),
            (200, None) => Err(Failure("a call came without Lambda-Runtime-Aws-Request-Id".into())),
            (status, _) => {
                Err(Failure(format!("expected a call, got status {status}: {}", String::from_utf8_lossy(&body))))
            }
        }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The API does not answer.
    pub(crate) fn answer(&mut self, request: &str, answer: &[u8]) -> Result<(), Failure> {
        // Whether the answer came in time is the caller's business.
        self.ask("POST", &format!("invocation/{request}/response"), answer).map(drop)
    }

    /// Tells that there will be no answers.
    ///
    /// # Errors
    /// The API does not answer.
    pub(crate) fn init_failed(&mut self, why: &str) -> Result<(), Failure> {
        let error = json!({ "errorType": "Savanna.Context", "errorMessage": why, "stackTrace": [] }).to_string();
        self.ask("POST", "init/error", error.as_bytes()).map(drop)
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Response, Failure> {
        let failed = |error: std::io::Error| Failure(format!("the Runtime API does not answer: {error}"));
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(&self.address).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                BufReader::new(stream)
            }
        };
        // In one write, or the body waits for the head to be acknowledged.
        let mut request = format!(
            "{method} /2018-06-01/runtime/{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        connection.get_mut().write_all(&request).map_err(failed)?;
        let response = read(&mut connection).map_err(failed)?;
        if !response.closes {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

fn read(from: &mut BufReader<TcpStream>) -> std::io::Result<Response> {
    let malformed = |what: &str| std::io::Error::other(format!("expected HTTP/1.1, got {what:?}"));
    let head = line(from)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| malformed(&head))?;
    let mut response = Response { status, request: None, body: Vec::new(), closes: false };
    let (mut length, mut chunked) = (None, false);
    for _ in 0..LINES_MAX {
        let header = line(from)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or_else(|| malformed(&header))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse().map_err(|_| malformed(&header))?),
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => response.closes = value.eq_ignore_ascii_case("close"),
            "lambda-runtime-aws-request-id" => response.request = Some(value.to_owned()),
            _ => {}
        }
    }
    if chunked {
        loop {
            let size = line(from)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| malformed(size))?;
            bytes(from, size, &mut response.body)?;
            line(from)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = length {
        bytes(from, length, &mut response.body)?;
    }
    Ok(response)
}

fn line(from: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    from.by_ref().take(LINE_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None => Err(std::io::Error::other("the connection ended, or a line is too long")),
    }
}

fn bytes(from: &mut BufReader<TcpStream>, count: usize, to: &mut Vec<u8>) -> std::io::Result<()> {
    if to.len() + count > BODY_MAX {
        return Err(std::io::Error::other(format!("a call has more than {BODY_MAX} bytes")));
    }
    let before = to.len();
    from.by_ref().take(count as u64).read_to_end(to)?;
    if to.len() - before < count { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that says what it is told to, and gives back what it was asked.
    fn server(says: &'static str) -> (RuntimeApi, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = RuntimeApi::new(&listener.local_addr().unwrap().to_string());
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 64 << 10];
            let count = stream.read(&mut asked).unwrap();
            stream.write_all(says.as_bytes()).unwrap();
            String::from_utf8_lossy(&asked[..count]).into_owned()
        });
        (api, asked)
    }

    #[test]
    fn a_call_has_a_length_or_chunks() {
        for says in [
            "HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: abc\r\ncontent-length: 7\r\n\r\npayload",
            "HTTP/1.1 200 OK\r\nlambda-runtime-aws-request-id: abc\r\nTransfer-Encoding: chunked\r\n\r\n3\r\npay\r\n4\r\nload\r\n0\r\n\r\n",
        ] {
            let (mut api, asked) = server(says);
            let call = api.next().unwrap();
            assert_eq!((call.request.as_str(), call.payload.as_slice()), ("abc", b"payload".as_slice()));
            assert!(asked.join().unwrap().starts_with("GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n"));
        }
    }

    #[test]
    fn an_answer_goes_to_its_request() {
        let (mut api, asked) = server("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}");
        api.answer("abc", b"{\"a\":1}").unwrap();
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /2018-06-01/runtime/invocation/abc/response HTTP/1.1\r\n"), "{asked}");
        assert!(asked.ends_with("\r\n\r\n{\"a\":1}"), "{asked}");
    }

    #[test]
    fn what_is_no_http_is_an_error() {
        for says in [
            "",
            "SSH-2.0\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        ] {
            let (mut api, asked) = server(says);
            assert!(api.next().is_err(), "{says}");
            drop(asked.join());
        }
    }
}
