//! Pairs a phone with a code that an operator shows as a QR code, and three words that both screens
//! show. The code only lets a device request pairing. An operator who sees the same words approves
//! it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_config::Config;
use interlock_wire::{OperatorScope, Scopes, Secret, WireError};
use sha2::Sha256;

/// How long a code is valid.
pub const PHONE_CODE_LIFE: Duration = Duration::from_mins(5);

/// The most codes at once. A new one then replaces the oldest.
const MOST_CODES: usize = 16;

/// The scopes that a device with a code can get.
const PHONE_SCOPES: [OperatorScope; 2] = [OperatorScope::Approvals, OperatorScope::Read];

/// The codes that were issued, each with the one device that used it. They exist in memory only.
#[derive(Debug, Default)]
pub struct PhoneCodes(Mutex<Vec<PhoneCode>>);

#[derive(Debug)]
struct PhoneCode {
    code: Secret,
    until: Instant,
    device: Option<String>,
}

impl PhoneCodes {
    fn lock(&self, now: Instant) -> MutexGuard<'_, Vec<PhoneCode>> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| code.until > now);
        codes
    }

    pub fn mint(&self, now: Instant) -> Result<Secret, getrandom::Error> {
        let code = Secret::generate()?;
        let mut codes = self.lock(now);
        if codes.len() >= MOST_CODES {
            codes.remove(0);
        }
        codes.push(PhoneCode {
            code: code.clone(),
            until: now + PHONE_CODE_LIFE,
            device: None,
        });
        Ok(code)
    }

    /// Whether a device may request pairing with this code. The code belongs to the first device
    /// that presents it.
    pub fn take(&self, presented: &str, device: &str, now: Instant) -> bool {
        let mut codes = self.lock(now);
        let mut codes = codes.iter_mut();
        let Some(found) = codes.find(|code| code.code.matches(presented)) else {
            return false;
        };
        found.device.get_or_insert_with(|| device.to_owned()) == device
    }

    /// Returns the three words of a device that came with a code. Both screens show them.
    pub fn words(&self, device: &str, now: Instant) -> Option<String> {
        let codes = self.lock(now);
        let mut codes = codes.iter();
        let found = codes.find(|code| code.device.as_deref() == Some(device))?;
        Some(words(&found.code, device))
    }
}

/// Returns those of the requested scopes that a code can give a device.
pub fn within_phone_scopes(asked: &Scopes) -> Scopes {
    asked
        .iter()
        .filter(|scope| PHONE_SCOPES.contains(scope))
        .collect()
}

fn words(code: &Secret, device: &str) -> String {
    let mut mac = <Hmac<Sha256>>::new_from_slice(code.expose().as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(b"interlock phone words v1\n");
    mac.update(device.as_bytes());
    let bytes = mac.finalize().into_bytes();
    let chosen = bytes.iter().take(3);
    let chosen = chosen.filter_map(|byte| WORDS.get(usize::from(*byte)).copied());
    chosen.collect::<Vec<_>>().join(" ")
}

/// Returns the address at which a phone reaches the pages: the address that the owner configured,
/// or that of the open port. It must be encrypted, because browsers give pages no keys otherwise.
pub fn phone_address(
    config: &Config,
    bound: Option<(SocketAddr, bool)>,
    base: &str,
) -> Result<String, WireError> {
    let refused = |message: &str, remedy: &str| {
        Err(WireError::invalid(message)
            .with("code", "PHONE_UNREACHABLE")
            .with("remediation", remedy))
    };
    if let Some(url) = config.gateway.remote.url.as_deref() {
        let Some(rest) = url.strip_prefix("wss://") else {
            return refused(
                "a phone needs TLS, and gateway.remote.url is not wss://",
                "interlock config set gateway.remote.url wss://HOST:PORT",
            );
        };
        return Ok(format!("https://{}{base}/", rest.trim_end_matches('/')));
    }
    let Some((bound, true)) = bound else {
        return refused(
            "a phone needs TLS, and the port speaks none",
            "interlock config set gateway.tls.enabled true; interlock gateway restart",
        );
    };
    let ip = match bound.ip() {
        ip if ip.is_loopback() => {
            return refused(
                "the gateway listens on this machine only, where no phone reaches it",
                "interlock config set gateway.bind lan, or gateway.remote.url where a proxy leads to it",
            );
        }
        ip if ip.is_unspecified() => match lan_address() {
            Some(ip) => ip,
            None => {
                return refused(
                    "this machine has no address that a phone could reach",
                    "interlock config set gateway.remote.url wss://HOST:PORT",
                );
            }
        },
        ip => ip,
    };
    Ok(format!(
        "https://{}{base}/",
        SocketAddr::new(ip, bound.port())
    ))
}

/// Returns the address of this machine in its own network. No packet is sent to find it.
pub fn lan_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // This address is reserved for documentation. It only selects the route.
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}

/// Words that are easy to tell apart, one for each byte.
#[rustfmt::skip]
const WORDS: [&str; 256] = [
    "acorn", "actor", "album", "alley", "amber", "anchor", "angle", "apple", "apron", "arrow",
    "atlas", "autumn", "badge", "bagel", "baker", "bamboo", "banjo", "barn", "basil", "basket",
    "beach", "beacon", "beaver", "bench", "berry", "bike", "birch", "bird", "bishop", "blanket",
    "blossom", "boat", "bonnet", "border", "bottle", "branch", "bread", "brick", "bridge",
    "bronze", "brook", "broom", "bucket", "buffalo", "butter", "button", "cabin", "cactus",
    "camel", "camera", "candle", "canoe", "canvas", "carbon", "cargo", "carpet", "carrot",
    "castle", "cedar", "cello", "cement", "chalk", "cherry", "chess", "circle", "clock", "cloud",
    "clover", "coast", "cobalt", "coffee", "comet", "copper", "coral", "cotton", "cradle",
    "crane", "crater", "cricket", "crown", "crystal", "cube", "curtain", "cymbal", "daisy",
    "dance", "dawn", "deer", "delta", "desert", "diamond", "dolphin", "donkey", "door", "dragon",
    "drum", "eagle", "earth", "east", "echo", "elbow", "elm", "ember", "engine", "fabric",
    "falcon", "feather", "fern", "ferry", "fiddle", "field", "finch", "flame", "flint", "flute",
    "forest", "fossil", "fox", "frost", "galaxy", "garden", "garlic", "ginger", "glacier",
    "glass", "globe", "goat", "gold", "granite", "grape", "gravel", "guitar", "hammer", "harbor",
    "harvest", "hazel", "heron", "hill", "hollow", "honey", "horizon", "hotel", "icicle", "igloo",
    "indigo", "iron", "island", "ivory", "jacket", "jade", "jaguar", "jasmine", "jelly", "jungle",
    "kettle", "kitten", "ladder", "lagoon", "lake", "lamp", "lantern", "laurel", "lava", "leaf",
    "lemon", "lentil", "lily", "lime", "linen", "lion", "lizard", "lobster", "lotus", "lunar",
    "magnet", "mango", "maple", "marble", "meadow", "melon", "metal", "mint", "mirror", "monkey",
    "moon", "moss", "motor", "mountain", "mustard", "needle", "nest", "nickel", "north", "oak",
    "oasis", "ocean", "olive", "onion", "opal", "orange", "orbit", "orchid", "otter", "owl",
    "oyster", "paddle", "palm", "panda", "paper", "parrot", "pasta", "peach", "peanut", "pearl",
    "pebble", "pencil", "pepper", "piano", "pigeon", "pillow", "pine", "planet", "plum", "pocket",
    "pond", "poppy", "potato", "prairie", "prism", "pumpkin", "purple", "quartz", "quilt",
    "rabbit", "radio", "rain", "raven", "reef", "ribbon", "ring", "river", "robin", "rocket",
    "rose", "ruby", "saddle", "saffron", "sail", "salmon", "sand", "satin", "seven", "shadow",
    "shell", "silver", "spruce",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_for_the_first_device_and_for_five_minutes() {
        let codes = PhoneCodes::default();
        let now = Instant::now();
        let code = codes.mint(now).unwrap();
        assert!(!codes.take("another", "a", now));
        assert_eq!(codes.words("a", now), None);
        assert!(codes.take(code.expose(), "a", now));
        assert!(
            codes.take(code.expose(), "a", now),
            "it asks again while it waits"
        );
        assert!(!codes.take(code.expose(), "b", now));
        let words = codes.words("a", now).unwrap();
        assert_eq!(words.split(' ').count(), 3, "{words}");
        assert!(!codes.take(code.expose(), "a", now + PHONE_CODE_LIFE));
        assert_eq!(codes.words("a", now + PHONE_CODE_LIFE), None);
    }

    #[test]
    fn words_differ_by_code_and_device() {
        let (one, two) = (Secret::new("one"), Secret::new("two"));
        assert_ne!(words(&one, "a"), words(&two, "a"));
        assert_ne!(words(&one, "a"), words(&one, "b"));
        let unique: std::collections::BTreeSet<_> = WORDS.iter().collect();
        assert_eq!(unique.len(), WORDS.len());
    }

    #[test]
    fn a_phone_is_led_to_an_address_that_it_reaches_and_that_is_encrypted() {
        let mut config = Config::default();
        let local: SocketAddr = "127.0.0.1:18789".parse().unwrap();
        let lan: SocketAddr = "10.1.2.3:18789".parse().unwrap();
        for bound in [None, Some((local, true)), Some((lan, false))] {
            let error = phone_address(&config, bound, "").unwrap_err();
            assert_eq!(error.detail_code(), Some("PHONE_UNREACHABLE"));
        }
        let address = phone_address(&config, Some((lan, true)), "/il").unwrap();
        assert_eq!(address, "https://10.1.2.3:18789/il/");
        config.gateway.remote.url = Some("wss://box.example/".to_owned());
        let address = phone_address(&config, None, "").unwrap();
        assert_eq!(address, "https://box.example/");
        config.gateway.remote.url = Some("ws://box.example/".to_owned());
        assert!(phone_address(&config, Some((lan, true)), "").is_err());
    }
}
