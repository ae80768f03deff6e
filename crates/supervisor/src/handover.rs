//! Passes connections from the supervisor to the process of a run, and reports back.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::message::ShimReport;

/// Longest report. Reports are short, except one that names the hosts of a network.
const MAX_REPORT: usize = 128 * 1024;

/// Longest note.
const MAX_NOTE: usize = 512;
const MOST_DESCRIPTORS: usize = 6;

/// A note from the supervisor to the process of a run.
#[derive(Debug)]
pub(super) enum Note {
    /// The connection of the client that orders the run.
    Start(OwnedFd),
    /// The connection of a client that has a request.
    Connection(OwnedFd),
    /// The transcript may take this many bytes from now on.
    Quota(u64),
    /// There are no further orders.
    Drain,
    /// The requested namespaces, in the order of
    /// [`RunShield::from_descriptors`](interlock_engine::shield::RunShield), and the number of
    /// process 1.
    Shield(Vec<OwnedFd>, i32),
    /// Why the namespaces could not be made.
    ShieldFailed(String),
    /// The namespaces that the runs of a scope share, in the order of
    /// [`ScopeNamespaces::from_descriptors`](interlock_engine::sandbox::ScopeNamespaces).
    Scope(Vec<OwnedFd>),
    /// The scope does not exist, and was not made.
    ScopeAbsent,
    /// Why the scope could not be made.
    ScopeFailed(String),
    /// The keeper of the run's scope is gone.
    ScopeGone,
}

const SHIELD: u8 = b'n';
const SHIELD_FAILED: u8 = b'f';
const SCOPE: u8 = b'k';
const SCOPE_FAILED: u8 = b'x';
const SCOPE_GONE: u8 = b'g';
const SCOPE_ABSENT: u8 = b'a';
const START: u8 = b's';
const CONNECTION: u8 = b'c';
const QUOTA: u8 = b'q';
const DRAIN: u8 = b'd';

/// Makes both ends of a control connection. Messages keep their boundaries, and each end detects
/// when the other is closed.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends a note without waiting: a process that takes no notes is not worth waiting for.
pub(super) fn send_note(control: &OwnedFd, note: &Note) -> io::Result<()> {
    let (kind, number, descriptors, text): (u8, u64, &[OwnedFd], &str) = match note {
        Note::Start(descriptor) => (START, 0, std::slice::from_ref(descriptor), ""),
        Note::Connection(descriptor) => (CONNECTION, 0, std::slice::from_ref(descriptor), ""),
        Note::Quota(bytes) => (QUOTA, *bytes, &[], ""),
        Note::Drain => (DRAIN, 0, &[], ""),
        Note::Shield(namespaces, init) => (SHIELD, (*init).cast_unsigned().into(), namespaces, ""),
        Note::ShieldFailed(why) => (SHIELD_FAILED, 0, &[], why),
        Note::Scope(namespaces) => (SCOPE, 0, namespaces, ""),
        Note::ScopeFailed(why) => (SCOPE_FAILED, 0, &[], why),
        Note::ScopeGone => (SCOPE_GONE, 0, &[], ""),
        Note::ScopeAbsent => (SCOPE_ABSENT, 0, &[], ""),
    };
    let mut message = vec![kind];
    message.extend(number.to_le_bytes());
    message.extend(text.bytes().take(MAX_NOTE - message.len()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    rustix::net::sendmsg(
        control,
        &[IoSlice::new(&message)],
        &mut ancillary,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits for the next note. `None` if the supervisor is gone.
pub(super) fn receive_note(control: &OwnedFd) -> io::Result<Option<Note>> {
    let mut message = [0; MAX_NOTE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(
            control,
            &mut [IoSliceMut::new(&mut message)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = part {
            descriptors.extend(some);
        }
    }
    let invalid = io::ErrorKind::InvalidData;
    let message = message.get(..received.bytes).ok_or(invalid)?;
    let (head, text) = message.split_first_chunk::<9>().ok_or(invalid)?;
    let [kind, number @ ..] = *head;
    let number = u64::from_le_bytes(number);
    let text = || String::from_utf8_lossy(text).into_owned();
    match (kind, descriptors.len()) {
        (SHIELD, 3..) => {
            let init = i32::try_from(number).map_err(|_| invalid)?;
            return Ok(Some(Note::Shield(descriptors, init)));
        }
        (SHIELD_FAILED, 0) => return Ok(Some(Note::ShieldFailed(text()))),
        (SCOPE, 3..) => return Ok(Some(Note::Scope(descriptors))),
        (SCOPE_FAILED, 0) => return Ok(Some(Note::ScopeFailed(text()))),
        (SCOPE_GONE, 0) => return Ok(Some(Note::ScopeGone)),
        (SCOPE_ABSENT, 0) => return Ok(Some(Note::ScopeAbsent)),
        _ => {}
    }
    match (kind, descriptors.pop()) {
        (START, Some(descriptor)) => Ok(Some(Note::Start(descriptor))),
        (CONNECTION, Some(descriptor)) => Ok(Some(Note::Connection(descriptor))),
        (QUOTA, None) => Ok(Some(Note::Quota(number))),
        (DRAIN, None) => Ok(Some(Note::Drain)),
        _ => Err(invalid.into()),
    }
}

pub(super) fn send_report(control: &OwnedFd, report: &ShimReport) -> io::Result<()> {
    let text = serde_json::to_vec(report)?;
    rustix::net::send(control, &text, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Returns the next report, if there is one. Fails also if the process is gone.
pub(super) fn receive_report(control: &OwnedFd) -> io::Result<Option<ShimReport>> {
    let mut buffer = vec![0; next_length(control)?.min(MAX_REPORT)];
    loop {
        return match rustix::net::recv(control, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => Ok(Some(serde_json::from_slice(&buffer[..length])?)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            // The process ended without reading a note. The kernel reports that once, before the
            // last reports.
            Err(Errno::CONNRESET) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

/// Returns the length of the next report, or 1 if there is none, so that its absence is noticed.
fn next_length(control: &OwnedFd) -> io::Result<usize> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    loop {
        return match rustix::net::recv(control, &mut [0; 1][..], flags) {
            Ok((_, length)) => Ok(length.max(1)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(1),
            Err(Errno::CONNRESET) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_report_is_heard_although_a_note_was_not_read() {
        let (supervisor, shim) = pair().unwrap();
        send_note(&supervisor, &Note::Quota(7)).unwrap();
        let over = ShimReport::Over {
            kept: None,
            survivors: 0,
            left_alone: Vec::new(),
            waits_for: None,
        };
        send_report(&shim, &over).unwrap();
        drop(shim);
        let heard = receive_report(&supervisor).unwrap();
        assert!(matches!(heard, Some(ShimReport::Over { survivors: 0, .. })));
        assert!(receive_report(&supervisor).is_err());
    }
}
