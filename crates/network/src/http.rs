//! Judges HTTP requests one by one: every request on a connection must be for the connection's
//! host. A request is rewritten from what was parsed before it is passed on, so that a server
//! cannot interpret it differently.

use std::io;

use interlock_plan::TargetHost;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest head, and most fields in it.
const MOST_HEAD: usize = 16 * 1024;
const MOST_FIELDS: usize = 100;

/// Longest line before a chunk, including extensions.
const MOST_CHUNK_LINE: usize = 256;

pub(crate) const HTTP_PORT: u16 = 80;

/// Fields that are not passed on, because they are only for the next hop or change the meaning of
/// what follows.
const DROPPED: [&str; 8] = [
    "upgrade",
    "http2-settings",
    "proxy-connection",
    "proxy-authorization",
    "keep-alive",
    "te",
    "trailer",
    "connection",
];

/// Why a request is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpRefusal {
    /// It is not an HTTP request, or one that servers interpret in different ways.
    Unclear(&'static str),
    OtherHost,
    Gone,
}

impl From<io::Error> for HttpRefusal {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl HttpRefusal {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unclear(why) => why,
            Self::OtherHost => "the HTTP request is for another host",
            Self::Gone => "the client went away",
        }
    }
}

/// One request, ready to be passed on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    pub head: Vec<u8>,
    body: RequestBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestBody {
    Length(u64),
    Chunked,
}

/// The request of a client to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProxyRequest {
    /// A connection over which the client itself speaks to the host.
    Connect(TargetHost, u16),
    /// A single request, which is the only one on its connection.
    Forward(TargetHost, u16, HttpRequest),
}

/// Reads requests from a client.
#[derive(Debug)]
pub(crate) struct RequestReader<R> {
    client: R,
    /// Bytes that were read and not passed on yet.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> RequestReader<R> {
    pub fn new(client: R) -> Self {
        Self {
            client,
            buffer: Vec::new(),
        }
    }

    /// Makes a reader for a client from which these bytes were already read.
    pub fn after(client: R, buffer: Vec<u8>) -> Self {
        Self { client, buffer }
    }

    /// Returns the client, and the bytes that it sent after the last request.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        (self.client, self.buffer)
    }

    /// Waits for the first byte of another request. Returns `false` if there is none.
    pub async fn has_next(&mut self) -> io::Result<bool> {
        Ok(!self.buffer.is_empty() || self.fill().await? > 0)
    }

    /// Returns the next request, which must be for this host.
    pub async fn next_for(
        &mut self,
        host: &TargetHost,
        port: u16,
    ) -> Result<HttpRequest, HttpRefusal> {
        let head = self.head().await?;
        let target = match head.target.as_str() {
            "*" if head.method == "OPTIONS" => "*",
            target if target.starts_with('/') => target,
            _ => {
                let (authority, path) = split_absolute(&head)?;
                if authority != (host.clone(), port) {
                    return Err(HttpRefusal::OtherHost);
                }
                path
            }
        };
        head.rewritten(target, host, port, Reuse::Allowed)
    }

    /// Returns the request of a client that knows this to be a proxy.
    pub async fn next_for_proxy(&mut self) -> Result<ProxyRequest, HttpRefusal> {
        let head = self.head().await?;
        if head.method == "CONNECT" {
            let (host, port) = TargetHost::read_with_port(&head.target, None)
                .map_err(|_| HttpRefusal::Unclear("CONNECT needs HOST:PORT"))?;
            head.body()?;
            return Ok(ProxyRequest::Connect(host, port));
        }
        let ((host, port), path) = split_absolute(&head)?;
        let request = head.rewritten(path, &host, port, Reuse::Never)?;
        Ok(ProxyRequest::Forward(host, port, request))
    }

    /// Passes on the body of a request. Returns how many bytes were written.
    pub async fn pass_body(
        &mut self,
        request: &HttpRequest,
        server: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64, HttpRefusal> {
        match request.body {
            RequestBody::Length(length) => {
                self.pass_exactly(length, server).await?;
                Ok(length)
            }
            RequestBody::Chunked => {
                let mut written = 0;
                loop {
                    let size = self.chunk_size().await?;
                    let line = format!("{size:x}\r\n");
                    server.write_all(line.as_bytes()).await?;
                    if size == 0 {
                        break;
                    }
                    self.pass_exactly(size, server).await?;
                    self.line_break().await?;
                    server.write_all(b"\r\n").await?;
                    written += size + line.len() as u64 + 2;
                }
                // Trailer fields are read, but not passed on.
                let mut rest = MOST_HEAD;
                loop {
                    let line = self.line(rest).await?;
                    if line.is_empty() {
                        break;
                    }
                    rest = rest.saturating_sub(line.len());
                }
                server.write_all(b"\r\n").await?;
                Ok(written + 5)
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.client.read_buf(&mut self.buffer).await
    }

    async fn head(&mut self) -> Result<ParsedHead, HttpRefusal> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
            let mut request = httparse::Request::new(&mut fields);
            let parsed = request.parse(&self.buffer);
            let unclear = HttpRefusal::Unclear("no HTTP request");
            if let httparse::Status::Complete(length) = parsed.map_err(|_| unclear)? {
                let head = ParsedHead::of(&request).ok_or(unclear)?;
                self.buffer.drain(..length);
                return Ok(head);
            }
            if self.buffer.len() >= MOST_HEAD {
                return Err(HttpRefusal::Unclear(
                    "the head of the HTTP request is too long",
                ));
            }
            if self.fill().await? == 0 {
                return Err(HttpRefusal::Gone);
            }
        }
    }

    async fn pass_exactly(
        &mut self,
        mut left: u64,
        server: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), HttpRefusal> {
        while left > 0 {
            if self.buffer.is_empty() && self.fill().await? == 0 {
                return Err(HttpRefusal::Gone);
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let count = self.buffer.len().min(most);
            server
                .write_all(self.buffer.get(..count).unwrap_or_default())
                .await?;
            self.buffer.drain(..count);
            left -= count as u64;
        }
        Ok(())
    }

    async fn chunk_size(&mut self) -> Result<u64, HttpRefusal> {
        let unclear = HttpRefusal::Unclear("the size of a chunk is unclear");
        let line = self.line(MOST_CHUNK_LINE).await?;
        let digits = line.split(';').next().unwrap_or_default();
        let is_plain =
            (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(digits, 16).map_err(|_| unclear)?;
        if is_plain { Ok(size) } else { Err(unclear) }
    }

    /// Reads a line that ends in CR LF and otherwise contains neither.
    async fn line(&mut self, most: usize) -> Result<String, HttpRefusal> {
        let unclear = HttpRefusal::Unclear("a line of the HTTP body is unclear");
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = line.strip_suffix(b"\r\n").ok_or(unclear)?;
                let line = str::from_utf8(line).map_err(|_| unclear)?;
                return if line.contains('\r') || line.len() > most {
                    Err(unclear)
                } else {
                    Ok(line.to_owned())
                };
            }
            if self.buffer.len() > most + 2 {
                return Err(unclear);
            }
            if self.fill().await? == 0 {
                return Err(HttpRefusal::Gone);
            }
        }
    }

    async fn line_break(&mut self) -> Result<(), HttpRefusal> {
        match self.line(0).await?.as_str() {
            "" => Ok(()),
            _ => Err(HttpRefusal::Unclear("a chunk is longer than it says")),
        }
    }
}

/// Whether further requests may follow on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Allowed,
    Never,
}

/// The parsed head of a request.
struct ParsedHead {
    method: String,
    target: String,
    minor_version: u8,
    fields: Vec<(String, Vec<u8>)>,
}

impl ParsedHead {
    fn of(request: &httparse::Request<'_, '_>) -> Option<Self> {
        Some(Self {
            method: request.method?.to_owned(),
            target: request.path?.to_owned(),
            minor_version: request.version?,
            fields: request
                .headers
                .iter()
                .map(|field| (field.name.to_ascii_lowercase(), field.value.to_owned()))
                .collect(),
        })
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let fields = self.fields.iter();
        fields
            .filter(move |(own, _)| own == name)
            .map(|(_, value)| value.as_slice())
    }

    /// Returns the only value of a field.
    fn only<'a>(
        &'a self,
        name: &'a str,
        several: &'static str,
    ) -> Result<Option<&'a str>, HttpRefusal> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => str::from_utf8(value)
                .map(|value| Some(value.trim_matches([' ', '\t'])))
                .map_err(|_| HttpRefusal::Unclear(several)),
            _ => Err(HttpRefusal::Unclear(several)),
        }
    }

    fn body(&self) -> Result<RequestBody, HttpRefusal> {
        let length = self.only("content-length", "several Content-Length fields")?;
        let coding = self.only("transfer-encoding", "several Transfer-Encoding fields")?;
        match (length, coding) {
            (None, None) => Ok(RequestBody::Length(0)),
            (Some(length), None) => {
                let is_plain =
                    length.len() <= 18 && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = length.parse().ok().filter(|_| is_plain);
                let length = length.ok_or(HttpRefusal::Unclear("the Content-Length is unclear"))?;
                Ok(RequestBody::Length(length))
            }
            (None, Some(coding))
                if coding.eq_ignore_ascii_case("chunked") && self.minor_version == 1 =>
            {
                Ok(RequestBody::Chunked)
            }
            (None, Some(_)) => Err(HttpRefusal::Unclear("the Transfer-Encoding is unclear")),
            (Some(_), Some(_)) => Err(HttpRefusal::Unclear(
                "both Content-Length and Transfer-Encoding",
            )),
        }
    }

    /// Rewrites the request for this host.
    fn rewritten(
        &self,
        target: &str,
        host: &TargetHost,
        port: u16,
        reuse: Reuse,
    ) -> Result<HttpRequest, HttpRefusal> {
        if self.method == "CONNECT" {
            return Err(HttpRefusal::Unclear("CONNECT inside of an HTTP connection"));
        }
        let named = self.only("host", "several Host fields")?;
        let named = named.ok_or(HttpRefusal::Unclear("no Host field"))?;
        let named = TargetHost::read_with_port(named, Some(HTTP_PORT))
            .map_err(|_| HttpRefusal::Unclear("the Host field is unclear"))?;
        if named != (host.clone(), port) {
            return Err(HttpRefusal::OtherHost);
        }
        let body = self.body()?;
        let mut head =
            format!("{} {target} HTTP/1.{}\r\n", self.method, self.minor_version).into_bytes();
        for (name, value) in &self.fields {
            if DROPPED.contains(&name.as_str()) {
                continue;
            }
            head.extend(name.as_bytes());
            head.extend(b": ");
            head.extend(value);
            head.extend(b"\r\n");
        }
        let is_last = reuse == Reuse::Never
            || self
                .all("connection")
                .any(|value| value.eq_ignore_ascii_case(b"close"));
        if is_last {
            head.extend(b"connection: close\r\n");
        } else if self.minor_version == 0
            && self
                .all("connection")
                .any(|value| value.eq_ignore_ascii_case(b"keep-alive"))
        {
            head.extend(b"connection: keep-alive\r\n");
        }
        head.extend(b"\r\n");
        Ok(HttpRequest { head, body })
    }
}

/// Splits `http://HOST[:PORT]/PATH` into host and path.
fn split_absolute(head: &ParsedHead) -> Result<((TargetHost, u16), &str), HttpRefusal> {
    let unclear = HttpRefusal::Unclear("the target of the HTTP request is unclear");
    let scheme = head.target.get(..7).ok_or(unclear)?;
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err(unclear);
    }
    let rest = head.target.get(7..).ok_or(unclear)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or(unclear)?;
    let target = TargetHost::read_with_port(authority, Some(HTTP_PORT)).map_err(|_| unclear)?;
    match path {
        "" => Ok((target, "/")),
        path if path.starts_with('/') => Ok((target, path)),
        _ => Err(unclear),
    }
}

/// Returns the response to a client whose request was not passed on.
pub(crate) fn refusal_page(status: &str, reason: &str) -> Vec<u8> {
    let text = format!("interlock: {reason}\n");
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
