//! A server with its identity and a client with its trust, over a pipe of memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interlock_tls::{
    AUTHORITY_FILE, CERTIFICATE_FILE, Fingerprint, Identity, IdentityError, KEY_FILE,
    TlsConnectError, Trust, Validity, connect,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn names() -> Vec<String> {
    vec!["localhost".to_owned(), "127.0.0.1".to_owned()]
}

/// What a client gets that greets a server with this identity.
async fn greet(identity: &Identity, trust: Trust) -> Result<String, TlsConnectError> {
    let (client, server) = tokio::io::duplex(16 * 1024);
    let acceptor = identity.acceptor();
    let serving = tokio::spawn(async move {
        let mut stream = acceptor.accept(server).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    });
    let connected = connect(client, "localhost", trust).await;
    let mut said = String::new();
    if let Ok(stream) = connected {
        let mut stream = stream;
        stream.read_to_string(&mut said).await.unwrap();
        serving.await.unwrap().unwrap();
        return Ok(said);
    }
    Err(connected.unwrap_err())
}

#[tokio::test]
async fn the_pinned_certificate_is_talked_to_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::kept(directory.path(), &names()).unwrap();
    let pin = identity.fingerprint();
    assert_eq!(greet(&identity, Trust::Pinned(pin)).await.unwrap(), "hello");
    let other = Fingerprint::of(b"another");
    match greet(&identity, Trust::Pinned(other)).await {
        Err(TlsConnectError::OtherCertificate { expected, found }) => {
            assert_eq!((expected, found), (other, pin));
        }
        result => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_recognized() {
    let (client, mut server) = tokio::io::duplex(1024);
    server
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let trust = Trust::Pinned(Fingerprint::of(b"any"));
    let error = connect(client, "localhost", trust).await.unwrap_err();
    assert!(matches!(error, TlsConnectError::NotTls), "{error:?}");
}

#[tokio::test]
async fn dates_are_told_and_do_not_matter_to_who_pinned() {
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let write = |name: &str, label: &str, der: &[u8]| {
        let text = STANDARD.encode(der);
        let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        let path = directory.path().join(name);
        fs::write(&path, pem).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let key_file = write("key.pem", "PRIVATE KEY", key.serialized_der());
    for (from, to, expected) in [
        (2000, 2001, Validity::Expired),
        (4000, 4001, Validity::NotYet),
        (2000, 4000, Validity::Valid),
    ] {
        let mut parameters = rcgen::CertificateParams::new(names()).unwrap();
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(to, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap();
        let file = write("cert.pem", "CERTIFICATE", certificate.der());
        let identity = Identity::read(&file, &key_file).unwrap();
        assert_eq!(identity.validity(), expected);
        let trust = Trust::Pinned(identity.fingerprint());
        assert_eq!(greet(&identity, trust).await.unwrap(), "hello");
    }
}

#[test]
fn an_identity_is_made_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let first = Identity::kept(directory.path(), &names()).unwrap();
    let mode = fs::metadata(directory.path().join(KEY_FILE)).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let other_names = vec!["elsewhere.example".to_owned()];
    let again = Identity::kept(directory.path(), &other_names).unwrap();
    assert_eq!(again.fingerprint(), first.fingerprint());
    assert!(again.is_for("localhost") && again.is_for("127.0.0.1"));
    assert!(!again.is_for("elsewhere.example") && !again.is_for("a b"));
    assert_eq!(again.validity(), Validity::Valid);
    // Besides it, only the authority that signed it is in the directory, and no key of that.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    let authority = fs::read_to_string(directory.path().join(AUTHORITY_FILE)).unwrap();
    assert!(!authority.contains("PRIVATE KEY"), "{authority}");
    assert!(Identity::kept_authority(directory.path()).is_some());
}

#[test]
fn a_start_that_was_cut_off_after_the_key_is_finished_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    Identity::kept(directory.path(), &names()).unwrap();
    let key = fs::read(directory.path().join(KEY_FILE)).unwrap();
    fs::remove_file(directory.path().join(CERTIFICATE_FILE)).unwrap();
    Identity::kept(directory.path(), &names()).unwrap();
    assert_eq!(fs::read(directory.path().join(KEY_FILE)).unwrap(), key);
    fs::remove_file(directory.path().join(KEY_FILE)).unwrap();
    let error = Identity::kept(directory.path(), &names()).unwrap_err();
    assert!(matches!(error, IdentityError::KeyGone { .. }), "{error}");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    Identity::kept(directory.path(), &names()).unwrap();
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = Identity::read(&pipe, &directory.path().join(KEY_FILE)).unwrap_err();
    assert!(matches!(error, IdentityError::NotAFile(_)), "{error}");
}

/// What an error says must never hold a line of a key.
#[test]
fn a_broken_key_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    Identity::kept(directory.path(), &names()).unwrap();
    let key = directory.path().join(KEY_FILE);
    let text = fs::read_to_string(&key).unwrap();
    let secret = text.lines().nth(1).unwrap().to_owned();
    for broken in [
        text.replace("-----END PRIVATE KEY-----", ""),
        text.replacen("-----\n", " ", 1),
        text.replacen(&secret, &format!("{secret}!"), 1),
        text.replacen(&secret, &secret[..8], 1),
    ] {
        fs::write(&key, broken).unwrap();
        let certificate = directory.path().join(CERTIFICATE_FILE);
        let error = Identity::read(&certificate, &key).unwrap_err().to_string();
        assert!(!error.contains(&secret[..8]), "{error}");
    }
}
