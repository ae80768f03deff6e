//! Calls to the API of a container engine, over its Unix socket. Docker Engine and Podman answer
//! the same calls, and paths without a version mean the version that the engine itself speaks.
//!
//! The client is written by hand and speaks HTTP/1.0, with one call per connection: the keeper of a
//! scope uses it, and must have one thread, because it makes namespaces afterwards.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Most bytes of an answer.
const MOST_BYTES: usize = 4 << 20;

/// How long an engine may take for a call.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// The API of one engine.
#[derive(Debug, Clone)]
pub(super) struct EngineApi {
    socket: PathBuf,
}

/// The answer of an engine.
#[derive(Debug)]
pub(super) struct EngineAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl EngineApi {
    /// Returns the engine behind a socket, which must belong to root or this account: another
    /// account could send any answer it likes.
    pub fn at(socket: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(socket)?;
        if !found.file_type().is_socket() {
            return Err(io::Error::other("it is not a socket"));
        }
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != 0 && found.uid() != own {
            return Err(io::Error::other("it belongs to another account"));
        }
        Ok(Self {
            socket: socket.to_owned(),
        })
    }

    /// Whether the engine answers.
    pub fn is_there(&self) -> bool {
        let asked = self.call("GET", "/_ping", None, Duration::from_secs(5));
        asked.is_ok_and(|answer| answer.status == 200)
    }

    /// Makes one call. The path contains no character with a meaning in HTTP, because image and
    /// container names are checked before.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> io::Result<EngineAnswer> {
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        if !path.bytes().all(is_plain) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let until = Instant::now() + patience;
        let mut stream = UnixStream::connect(&self.socket)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.set_write_timeout(Some(CALL_PATIENCE))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut all = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => all.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
            if all.len() > MOST_BYTES {
                return Err(io::Error::other("its answer is too long"));
            }
        }
        EngineAnswer::read(&all)
    }
}

impl EngineAnswer {
    fn read(bytes: &[u8]) -> io::Result<Self> {
        let odd = || io::Error::other("its answer is not that of a container engine");
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.ok_or_else(odd)?;
        let (head, body) = bytes.split_at(end + 4);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let mut words = head.split_whitespace();
        let is_http = words.next().is_some_and(|word| word.starts_with("http/1."));
        let status = words.next().and_then(|word| word.parse().ok());
        // An answer to HTTP/1.0 ends with its connection.
        if !is_http || head.contains("transfer-encoding") {
            return Err(odd());
        }
        Ok(Self {
            status: status.ok_or_else(odd)?,
            body: body.to_vec(),
        })
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> io::Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Returns the engine's own reason for a refusal, as one line.
    pub fn message(&self) -> String {
        let told = self.json().ok();
        let told = told.as_ref().and_then(|body| body["message"].as_str());
        let text = told.map_or_else(
            || String::from_utf8_lossy(&self.body).into_owned(),
            str::to_owned,
        );
        one_line(&text)
    }
}

/// Turns text of an engine or a program into one short line without control characters.
pub(crate) fn one_line(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ").chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn answer_of(text: &'static str) -> io::Result<EngineAnswer> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let api = EngineApi::at(&path).unwrap();
        let answer = api.call("GET", "/images/a:1/json", None, CALL_PATIENCE);
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /images/a:1/json HTTP/1.0\r\n"));
        answer
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        let answer =
            answer_of("HTTP/1.0 404 Not Found\r\nA: b\r\n\r\n{\"message\":\"no\\nimage\"}");
        let answer = answer.unwrap();
        assert_eq!(answer.status, 404);
        assert_eq!(answer.message(), "no image");
    }

    #[test]
    fn what_is_no_answer_of_an_engine_is_an_error() {
        for text in [
            "",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.0 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            assert!(answer_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_cannot_carry_a_second_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engine.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let api = EngineApi::at(&path).unwrap();
        for odd in ["/a b", "/a\r\nX: y", "/ä"] {
            let error = api.call("GET", odd, None, CALL_PATIENCE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{odd}");
        }
    }
}
