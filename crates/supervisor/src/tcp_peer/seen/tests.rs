use std::process::{Child, Command};

use super::*;

impl SeenProcesses {
    pub(in crate::tcp_peer) fn knows_outsider(&self, pid: i32) -> bool {
        let seen = self.processes.get(&pid);
        seen.is_some_and(|seen| seen.knowledge == ProcessKnowledge::Outsider)
    }
}

fn sleeper() -> (Child, i32) {
    let child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    (child, pid)
}

/// Looks until each process that is there was asked about.
fn learnt() -> SeenProcesses {
    let mut seen = SeenProcesses::default();
    let wanted = BTreeSet::from([0]);
    for _ in 0..200 {
        assert!(seen.holding(&wanted).is_none());
        seen.learn(|_| true);
    }
    seen
}

#[test]
fn a_process_is_known_after_two_looks_and_forgotten_with_its_end() {
    let (mut child, pid) = sleeper();
    let mut seen = learnt();
    assert!(seen.knows_outsider(pid));
    child.kill().unwrap();
    child.wait().unwrap();
    seen.holding(&BTreeSet::from([0]));
    assert!(!seen.processes.contains_key(&pid));
}

/// What has the number of a known process and another directory is another process.
#[test]
fn a_number_that_was_given_away_again_is_a_new_process() {
    let (mut child, pid) = sleeper();
    let mut seen = learnt();
    seen.processes.get_mut(&pid).unwrap().directory += 1;
    seen.holding(&BTreeSet::from([0]));
    assert_eq!(seen.processes[&pid].knowledge, ProcessKnowledge::New);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn each_process_has_a_directory_of_its_own_for_as_long_as_it_lives() {
    let (mut child, pid) = sleeper();
    let table = proc().unwrap();
    let first = directory_of(&table, pid);
    assert!(first.is_some());
    assert_eq!(directory_of(&table, pid), first);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(directory_of(&table, pid), first);
    let all = all_processes().unwrap();
    let directories: BTreeSet<u64> = all.iter().map(|(_, directory)| *directory).collect();
    assert_eq!(directories.len(), all.len());
}
