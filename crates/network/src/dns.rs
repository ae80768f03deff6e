//! Answers DNS questions. No question leaves this machine: a name that may be reached gets an
//! address of Interlock's own, and every other name does not exist.

use std::net::Ipv4Addr;

use interlock_plan::HostName;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};

/// Longest question that is read.
pub(crate) const MOST_QUESTION: usize = 4_096;

/// How long a client may keep an answer, in seconds. The address of a name does not change.
const SECONDS: u32 = 60;

/// The result of looking up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameAnswer {
    Address(Ipv4Addr),
    /// The name does not exist in this sandbox.
    Nothing,
    /// There is no space for another name.
    Failure,
}

/// Returns the answer to a message, if the message is a question at all. `look_up` is called once
/// for each name.
pub(crate) fn answer(
    message: &[u8],
    look_up: impl FnOnce(&HostName) -> NameAnswer,
) -> Option<Vec<u8>> {
    let message = message.get(..MOST_QUESTION).unwrap_or(message);
    let query = Packet::parse(message).ok()?;
    if query.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    let id = query.id();
    let mut reply = Packet::new_reply(id);
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let [question] = query.questions.as_slice() else {
        *reply.rcode_mut() = RCODE::FormatError;
        return reply.build_bytes_vec_compressed().ok();
    };
    reply.questions.push(question.clone());
    let name = question.qname.to_string().parse::<HostName>();
    let is_internet = matches!(question.qclass, QCLASS::CLASS(CLASS::IN));
    match name {
        Ok(name) if is_internet => match look_up(&name) {
            NameAnswer::Address(address) => {
                // A question for another kind of address gets no data, which is no error.
                if matches!(question.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) {
                    let data = RData::A(A::from(address));
                    let name = question.qname.clone();
                    let record = ResourceRecord::new(name, CLASS::IN, SECONDS, data);
                    reply.answers.push(record);
                }
            }
            NameAnswer::Nothing => *reply.rcode_mut() = RCODE::NameError,
            NameAnswer::Failure => *reply.rcode_mut() = RCODE::ServerFailure,
        },
        _ => *reply.rcode_mut() = RCODE::NameError,
    }
    reply.build_bytes_vec_compressed().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::{Name, Question};

    fn question(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        packet.questions.push(Question::new(
            Name::new_unchecked(name),
            QTYPE::TYPE(kind),
            QCLASS::CLASS(CLASS::IN),
            false,
        ));
        packet.build_bytes_vec().unwrap()
    }

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);

    fn ask(message: &[u8]) -> Option<(RCODE, usize)> {
        let look_up = |name: &HostName| match name.as_str() {
            "ok.test" => NameAnswer::Address(ADDRESS),
            _ => NameAnswer::Nothing,
        };
        let reply = answer(message, look_up)?;
        let reply = Packet::parse(&reply).unwrap();
        assert!(reply.has_flags(PacketFlag::RESPONSE));
        Some((reply.rcode(), reply.answers.len()))
    }

    #[test]
    fn a_name_has_an_address_or_does_not_exist() {
        assert_eq!(
            ask(&question("ok.test", TYPE::A)),
            Some((RCODE::NoError, 1))
        );
        assert_eq!(
            ask(&question("OK.Test", TYPE::A)),
            Some((RCODE::NoError, 1))
        );
        assert_eq!(
            ask(&question("ok.test", TYPE::AAAA)),
            Some((RCODE::NoError, 0))
        );
        assert_eq!(
            ask(&question("ok.test", TYPE::TXT)),
            Some((RCODE::NoError, 0))
        );
        assert_eq!(
            ask(&question("no.test", TYPE::A)),
            Some((RCODE::NameError, 0))
        );
        assert_eq!(
            ask(&question("c2VjcmV0.ok.test", TYPE::TXT)),
            Some((RCODE::NameError, 0))
        );
    }

    #[test]
    fn hostile_messages_are_answered_with_an_error_or_not_at_all() {
        // A name that points to itself, one that points forward, and one that has no end.
        let head = |questions: u8| {
            let mut head = vec![0, 7, 1, 0, 0, questions, 0, 0, 0, 0, 0, 0];
            head.extend([0_u8; 0]);
            head
        };
        let mut loops = head(1);
        loops.extend([0xc0, 12, 0, 1, 0, 1]);
        let mut forward = head(1);
        forward.extend([0xc0, 40, 0, 1, 0, 1]);
        let mut endless = head(1);
        endless.extend([63; 300]);
        let mut both = head(1);
        both.extend([1, b'a', 0xc0, 12, 0, 1, 0, 1]);
        for message in [
            &loops,
            &forward,
            &endless,
            &both,
            &head(1),
            &head(255),
            &Vec::new(),
        ] {
            let answered = ask(message);
            assert!(answered.is_none_or(|(code, count)| code != RCODE::NoError && count == 0));
        }
        // Two questions, an answer in place of a question, and every cut of a good one.
        let good = question("ok.test", TYPE::A);
        let mut two = Packet::parse(&good).unwrap();
        two.questions.push(two.questions[0].clone());
        assert_eq!(
            ask(&two.build_bytes_vec().unwrap()),
            Some((RCODE::FormatError, 0))
        );
        let mut reply = good.clone();
        reply[2] |= 0x80;
        assert_eq!(ask(&reply), None);
        for end in 0..good.len() {
            let _ = ask(&good[..end]);
        }
        for at in 0..good.len() {
            for byte in [0, 0x3f, 0x40, 0xc0, 0xff] {
                let mut changed = good.clone();
                changed[at] = byte;
                let _ = ask(&changed);
            }
        }
        let mut long = question("ok.test", TYPE::A);
        long.resize(100_000, 0);
        let _ = ask(&long);
    }
}
