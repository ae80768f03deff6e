//! Connections on their way from the supervisor to the process of a run, and reports back.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::message::Report;

/// A report is short.
const MAX_REPORT: usize = 1024;

/// What the supervisor tells the process of a run.
#[derive(Debug)]
pub(super) enum Note {
    /// The connection of the one who orders the run.
    Start(OwnedFd),
    /// A connection of somebody who has a request.
    Connection(OwnedFd),
    /// The transcript may take this much from now on.
    Quota(u64),
    /// No further orders.
    Drain,
}

const START: u8 = b's';
const CONNECTION: u8 = b'c';
const QUOTA: u8 = b'q';
const DRAIN: u8 = b'd';

/// The two ends: messages keep their borders, and one end sees when the other is closed.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Never waits: a process that takes no notes is not worth waiting for.
pub(super) fn send_note(control: &OwnedFd, note: &Note) -> io::Result<()> {
    let (kind, number, descriptor) = match note {
        Note::Start(descriptor) => (START, 0, Some(descriptor)),
        Note::Connection(descriptor) => (CONNECTION, 0, Some(descriptor)),
        Note::Quota(bytes) => (QUOTA, *bytes, None),
        Note::Drain => (DRAIN, 0, None),
    };
    let mut message = [0; 9];
    message[0] = kind;
    message[1..].copy_from_slice(&number.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(AsFd::as_fd);
    if let Some(descriptor) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(
            descriptor,
        )));
    }
    rustix::net::sendmsg(
        control,
        &[IoSlice::new(&message)],
        &mut ancillary,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits for the next note; `None` when the supervisor is gone.
pub(super) fn receive_note(control: &OwnedFd) -> io::Result<Option<Note>> {
    let mut message = [0; 9];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
    let mut descriptor = None;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            descriptor = descriptors.last();
        }
    }
    let [kind, number @ ..] = message;
    match (kind, descriptor) {
        (START, Some(descriptor)) => Ok(Some(Note::Start(descriptor))),
        (CONNECTION, Some(descriptor)) => Ok(Some(Note::Connection(descriptor))),
        (QUOTA, None) => Ok(Some(Note::Quota(u64::from_le_bytes(number)))),
        (DRAIN, None) => Ok(Some(Note::Drain)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

pub(super) fn send_report(control: &OwnedFd, report: &Report) -> io::Result<()> {
    let text = serde_json::to_vec(report)?;
    rustix::net::send(control, &text, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next report, if there is one; an error also when the process is gone.
pub(super) fn receive_report(control: &OwnedFd) -> io::Result<Option<Report>> {
    let mut buffer = [0; MAX_REPORT];
    loop {
        return match rustix::net::recv(control, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => Ok(Some(serde_json::from_slice(&buffer[..length])?)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            // It ended without reading a note. That is said once, and before its last reports.
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
        let over = Report::Over {
            kept: None,
            survivors: 0,
            left_alone: Vec::new(),
            waits: false,
        };
        send_report(&shim, &over).unwrap();
        drop(shim);
        let heard = receive_report(&supervisor).unwrap();
        assert!(matches!(heard, Some(Report::Over { survivors: 0, .. })));
        assert!(receive_report(&supervisor).is_err());
    }
}
