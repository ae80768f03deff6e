//! Devices prove who they are. The signatures and key files here were made by other programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_wire::identity::{
    DeviceClaim, DeviceIdentity, DeviceIdentityError, IdentityFile, MAX_SIGNATURE_AGE_MS,
    SignatureVersion, verify,
};
use interlock_wire::params::{Auth, Client, Connect, Device};
use interlock_wire::{Secret, refusal};

const NOW: u64 = 1_700_000_000_000;
const DEVICE_ID: &str = "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c";
const PUBLIC_KEY: &str = "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg";
/// By Python's `cryptography`, key 00 01 … 1f, over
/// `v3|ID|node-host|node|node||1700000000000|tok-123|nonce-abc|linux|linux`.
const SIGNATURE_V3: &str =
    "O_3up8aC4M9ETlyxlvytu1-TWychc1v4CJbpJimaKX4sppknqGtDijx_SM0oLPLz1JlRN4gf6qek-K-OrZ4bCg";
/// The same over `v2|ID|cli|cli|operator|operator.read,operator.write|1700000000000||nonce-abc`.
const SIGNATURE_V2: &str =
    "_JvmErLEx13FY6eb6PofQ9SqSS8p-7u3Jr9a46pxLmmcTLOs_ywtZ6CKBIGqd1XCO6x_EO1ZPY9arX9xhhxmBA";
/// By Node.js.
const FILE: &str = r#"{
  "version": 1,
  "deviceId": "1142c7c339978c13dfdc7105364788775458e1375e8b2d2271a41acc5b5eee66",
  "publicKeyPem": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEApmIBA9Uxk+s8mbaERyGkck9thmv60Gf27mvDNP3+iig=\n-----END PUBLIC KEY-----\n",
  "privateKeyPem": "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIIKsjnR5wRpadrFr9a+DPOMY+4AXePZBouleyBvlv2kq\n-----END PRIVATE KEY-----\n",
  "createdAtMs": 1700000000000
}
"#;

fn key() -> DeviceIdentity {
    DeviceIdentity::from_seed(&std::array::from_fn(|n| u8::try_from(n).unwrap()))
}

fn device(signature: &str) -> Device {
    Device {
        id: DEVICE_ID.into(),
        public_key: PUBLIC_KEY.into(),
        signature: signature.into(),
        signed_at: NOW,
        nonce: "nonce-abc".into(),
    }
}

fn node() -> Connect {
    Connect {
        client: Client {
            id: "node-host".into(),
            mode: "node".into(),
            version: "1".into(),
            platform: " Linux ".into(),
            device_family: Some("LINUX".into()),
            ..Client::default()
        },
        role: Some("node".into()),
        scopes: Some(Vec::new()),
        auth: Some(Auth {
            token: Some(Secret::new("tok-123")),
            ..Auth::default()
        }),
        device: Some(device(SIGNATURE_V3)),
        ..Connect::default()
    }
}

fn operator() -> Connect {
    Connect {
        client: Client {
            id: "cli".into(),
            mode: "cli".into(),
            version: "1".into(),
            platform: "linux".into(),
            ..Client::default()
        },
        scopes: Some(vec!["operator.read".into(), "operator.write".into()]),
        device: Some(device(SIGNATURE_V2)),
        ..Connect::default()
    }
}

#[test]
fn a_fixed_key_gives_a_fixed_id_and_fixed_signatures() {
    assert_eq!(
        (key().device_id(), key().public_key()),
        (DEVICE_ID.into(), PUBLIC_KEY.into())
    );
    let connect = node();
    let claim = DeviceClaim::of(&connect, "nonce-abc", NOW, "tok-123");
    assert_eq!(key().sign(&claim, SignatureVersion::V3), SIGNATURE_V3);
    let connect = operator();
    let claim = DeviceClaim::of(&connect, "nonce-abc", NOW, "");
    assert_eq!(key().sign(&claim, SignatureVersion::V2), SIGNATURE_V2);
}

#[test]
fn the_signed_text_has_every_field_in_its_place() {
    let scopes = ["operator.admin".to_owned(), "operator.read".to_owned()];
    let claim = DeviceClaim {
        client_id: "openclaw-macos",
        client_mode: "ui",
        role: "operator",
        scopes: &scopes,
        signed_at_ms: NOW,
        token: "tok-123",
        nonce: "nonce-abc",
        platform: Some("  iOS "),
        device_family: Some("iPhone"),
    };
    assert_eq!(
        claim.payload("dev-1", SignatureVersion::V3),
        "v3|dev-1|openclaw-macos|ui|operator|operator.admin,operator.read|1700000000000|tok-123|nonce-abc|ios|iphone"
    );
    let claim = DeviceClaim {
        client_id: "openclaw-ios",
        scopes: &scopes[1..],
        signed_at_ms: NOW + 1,
        token: "",
        nonce: "nonce-def",
        platform: None,
        device_family: None,
        ..claim
    };
    assert_eq!(
        claim.payload("dev-2", SignatureVersion::V3),
        "v3|dev-2|openclaw-ios|ui|operator|operator.read|1700000000001||nonce-def||"
    );
    assert_eq!(
        claim.payload("dev-2", SignatureVersion::V2),
        "v2|dev-2|openclaw-ios|ui|operator|operator.read|1700000000001||nonce-def"
    );
    let greek = DeviceClaim {
        platform: Some("ΣLinux"),
        ..claim
    };
    assert!(
        greek
            .payload("d", SignatureVersion::V3)
            .ends_with("|Σlinux|")
    );
}

#[test]
fn signatures_of_both_versions_are_good() {
    let verified = verify(&node(), "nonce-abc", NOW).unwrap();
    assert_eq!(verified.version, SignatureVersion::V3);
    assert_eq!(
        (verified.device_id, verified.public_key),
        (DEVICE_ID.into(), PUBLIC_KEY.into())
    );
    let verified = verify(&operator(), "nonce-abc", NOW).unwrap();
    assert_eq!(verified.version, SignatureVersion::V2);
}

#[test]
fn a_proof_made_here_is_good_and_padding_is_passed_over() {
    let identity = DeviceIdentity::generate().unwrap();
    let mut connect = Connect {
        device: None,
        ..node()
    };
    identity.prove(&mut connect, "n-1", NOW);
    let verified = verify(&connect, "n-1", NOW + MAX_SIGNATURE_AGE_MS).unwrap();
    assert_eq!(verified.device_id, identity.device_id());
    let device = connect.device.as_mut().unwrap();
    device.public_key.push('=');
    device.signature.push_str("==");
    let padded = verify(&connect, "n-1", NOW - MAX_SIGNATURE_AGE_MS).unwrap();
    assert_eq!(padded, verified);
}

#[test]
fn whatever_is_signed_cannot_be_changed() {
    let changes: &[fn(&mut Connect)] = &[
        |connect| connect.client.id = "cli".into(),
        |connect| connect.client.mode = "cli".into(),
        |connect| connect.role = None,
        |connect| connect.scopes = Some(vec!["operator.admin".into()]),
        |connect| connect.auth = None,
        |connect| connect.auth.as_mut().unwrap().token = Some(Secret::new("other")),
        |connect| connect.client.platform = "macos".into(),
        |connect| connect.client.device_family = None,
        |connect| connect.device.as_mut().unwrap().signed_at += 1,
        |connect| connect.device.as_mut().unwrap().signature = SIGNATURE_V2.into(),
        |connect| connect.device.as_mut().unwrap().signature = "AAAA".into(),
        |connect| connect.device.as_mut().unwrap().signature = "!".into(),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut connect = node();
        change(&mut connect);
        let refused = verify(&connect, "nonce-abc", NOW).unwrap_err();
        assert_eq!(refused, &refusal::DEVICE_AUTH_SIGNATURE_INVALID, "{index}");
    }
}

#[test]
fn the_checks_come_in_their_order() {
    // Everything is wrong; one thing after the other is put right.
    let mut connect = node();
    connect.device = None;
    let check = |connect: &Connect| verify(connect, "nonce-abc", NOW).map_err(|no| no.detail);
    assert_eq!(check(&connect), Err("DEVICE_IDENTITY_REQUIRED"));
    connect.device = Some(Device {
        id: "other".into(),
        public_key: PUBLIC_KEY.into(),
        signature: "bad".into(),
        signed_at: 0,
        nonce: " ".into(),
    });
    assert_eq!(check(&connect), Err("DEVICE_AUTH_DEVICE_ID_MISMATCH"));
    connect.device.as_mut().unwrap().id = DEVICE_ID.into();
    assert_eq!(check(&connect), Err("DEVICE_AUTH_SIGNATURE_EXPIRED"));
    connect.device.as_mut().unwrap().signed_at = NOW + MAX_SIGNATURE_AGE_MS + 1;
    assert_eq!(check(&connect), Err("DEVICE_AUTH_SIGNATURE_EXPIRED"));
    connect.device.as_mut().unwrap().signed_at = NOW;
    assert_eq!(check(&connect), Err("DEVICE_AUTH_NONCE_REQUIRED"));
    connect.device.as_mut().unwrap().nonce = "old".into();
    assert_eq!(check(&connect), Err("DEVICE_AUTH_NONCE_MISMATCH"));
    connect.device.as_mut().unwrap().nonce = "nonce-abc".into();
    assert_eq!(check(&connect), Err("DEVICE_AUTH_SIGNATURE_INVALID"));
    connect.device.as_mut().unwrap().signature = SIGNATURE_V3.into();
    assert!(check(&connect).is_ok());
}

#[test]
fn a_key_under_which_anybody_can_sign_is_refused() {
    use base64::Engine;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    // The neutral element as key, and as the point of a signature with the number zero: a check that
    // only compares points accepts it for every text.
    let mut point = [0_u8; 32];
    point[0] = 1;
    let mut signature = [0_u8; 64];
    signature[0] = 1;
    let mut connect = node();
    let device = connect.device.as_mut().unwrap();
    device.id = interlock_wire::identity::device_id(&point);
    device.public_key = encode(&point);
    device.signature = encode(&signature);
    let refused = verify(&connect, "nonce-abc", NOW).unwrap_err();
    assert_eq!(refused, &refusal::DEVICE_AUTH_SIGNATURE_INVALID);
}

#[test]
fn an_identity_of_another_program_is_taken_over() {
    let (file, identity) = IdentityFile::parse(FILE).unwrap();
    assert_eq!(identity.device_id(), file.device_id);
    let written = IdentityFile::of(&identity, file.created_at_ms);
    assert_eq!(written.to_text().unwrap(), FILE);
}

#[test]
fn a_new_identity_survives_being_written_and_read() {
    let identity = DeviceIdentity::generate().unwrap();
    let text = IdentityFile::of(&identity, NOW).to_text().unwrap();
    let (_, read) = IdentityFile::parse(&text).unwrap();
    assert_eq!(read.public_key(), identity.public_key());
    assert_ne!(
        DeviceIdentity::generate().unwrap().public_key(),
        identity.public_key()
    );
}

#[test]
fn a_file_that_does_not_fit_together_is_refused_without_telling_the_key() {
    let other = IdentityFile::of(&key(), NOW);
    let (good, _) = IdentityFile::parse(FILE).unwrap();
    let change = |change: &dyn Fn(&mut IdentityFile)| {
        let mut file = good.clone();
        change(&mut file);
        file.identity().unwrap_err()
    };
    assert_eq!(
        change(&|file| file.version = 2),
        DeviceIdentityError::Version(2)
    );
    assert_eq!(
        change(&|file| file.device_id = DEVICE_ID.into()),
        DeviceIdentityError::DeviceIdDiffers
    );
    assert_eq!(
        change(&|file| file.public_key_pem.clone_from(&other.public_key_pem)),
        DeviceIdentityError::KeysDiffer
    );
    assert_eq!(
        change(&|file| file.private_key_pem.clone_from(&other.public_key_pem)),
        DeviceIdentityError::Key("privateKeyPem")
    );
    assert_eq!(
        change(&|file| file.public_key_pem = String::new()),
        DeviceIdentityError::Key("publicKeyPem")
    );
    let broken = IdentityFile::parse(&FILE.replace("\"version\": 1", "\"version\": \"MC4C\""));
    assert!(!broken.unwrap_err().to_string().contains("MC4C"));
    let (file, identity) = IdentityFile::parse(FILE).unwrap();
    assert!(!format!("{file:?}{identity:?}").contains("PRIVATE"));
}

#[test]
fn secrets_match_only_themselves_and_are_never_shown() {
    let secret = Secret::generate().unwrap();
    assert_eq!(secret.expose().len(), 43);
    assert!(secret.matches(secret.expose()));
    assert!(!secret.matches("") && !secret.matches(&secret.expose()[1..]));
    assert!(!Secret::default().matches(""), "an empty secret is none");
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    assert_ne!(Secret::generate().unwrap(), secret);
}
