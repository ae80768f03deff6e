//! A small assembler for seccomp programs. Interlock has its own because the available libraries
//! have no guard against the x32 calls of an x86-64 kernel and no user notification.
//!
//! The handling of a call is a block of instructions that itself returns an action, so that no
//! block depends on another. The block of a call is found by binary search: when a program is
//! installed, the kernel walks through it once for each call that it knows, and compiles all of it,
//! while the process that is about to run waits.

use std::collections::BTreeMap;

/// One instruction of classic BPF, laid out as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInstruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub value: u32,
}

/// The action that is taken for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterAction {
    Allow,
    /// The call is not made, and fails with this error.
    Refuse(u16),
    /// The call is not made, but reports success to the caller.
    Ignore,
    /// The process waits until the listener of the filter has answered.
    Ask,
    /// The process is ended.
    Kill,
}

impl FilterAction {
    pub(super) fn encoded(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Refuse(error) => 0x0005_0000 | u32::from(error),
            Self::Ignore => 0x0005_0000,
            Self::Ask => 0x7fc0_0000,
            Self::Kill => 0x8000_0000,
        }
    }
}

/// A test of one argument. For numbers, only the low 32 bits count: the kernel reads no more of the
/// arguments that are tested here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentTest {
    /// The argument is this value.
    Is(usize, u32),
    /// The argument has at least one of these bits.
    HasAny(usize, u32),
    /// The upper half of the argument, which is an address, has at least one of these bits.
    UpperHasAny(usize, u32),
}

/// A set of tests that leads to an action if all of them hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterRule {
    pub tests: Vec<ArgumentTest>,
    pub action: FilterAction,
}

/// The handling of one system call: the first matching rule, or else the last action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallBlock {
    pub number: u32,
    pub rules: Vec<FilterRule>,
    pub otherwise: FilterAction,
}

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// Offset from the low half of an argument to its upper half.
const UPPER_HALF: u32 = 4;

/// The bit that marks the x32 calls of an x86-64 kernel, which are other calls under the same
/// numbers.
const X32: u32 = 0x4000_0000;

/// The architecture that a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterTarget {
    pub architecture: u32,
    pub has_x32: bool,
}

/// Assembles the whole program: other architectures are killed, listed calls are handled by their
/// block, and every other call does not exist (`ENOSYS`).
pub(crate) fn assemble(target: FilterTarget, blocks: &[CallBlock]) -> Vec<FilterInstruction> {
    assemble_or(target, blocks, FilterAction::Refuse(ENOSYS))
}

/// Does the same with another action for calls that are not listed.
fn assemble_or(
    target: FilterTarget,
    blocks: &[CallBlock],
    others: FilterAction,
) -> Vec<FilterInstruction> {
    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        jump(JUMP_EQUAL, target.architecture, 1, 0),
        give(FilterAction::Kill),
        load(OFFSET_NUMBER),
    ];
    if target.has_x32 {
        program.push(jump(JUMP_AT_LEAST, X32, 0, 1));
        program.push(give(FilterAction::Kill));
    }
    program.extend(search(&ranges(blocks, others)));
    program
}

/// The handling of all calls from a number on, up to the next range.
struct CallRange {
    first: u32,
    body: Vec<FilterInstruction>,
}

/// Returns all numbers in order. Neighbors with the same body form one range. If several blocks are
/// for one call, the first counts.
fn ranges(blocks: &[CallBlock], others: FilterAction) -> Vec<CallRange> {
    let mut by_number = BTreeMap::new();
    for block in blocks {
        by_number.entry(block.number).or_insert_with(|| body(block));
    }
    let mut all: Vec<CallRange> = Vec::new();
    let mut add = |first, body: Vec<FilterInstruction>| {
        if all.last().is_none_or(|last| last.body != body) {
            all.push(CallRange { first, body });
        }
    };
    let mut next = 0;
    for (number, body) in by_number {
        if number > next {
            add(next, vec![give(others)]);
        }
        add(number, body);
        next = number.saturating_add(1);
    }
    add(next, vec![give(others)]);
    all
}

/// Builds the search that leads a number to the body of its range.
fn search(ranges: &[CallRange]) -> Vec<FilterInstruction> {
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some(middle) = high.first() else {
        return Vec::new();
    };
    if low.is_empty() {
        return middle.body.clone();
    }
    let low = search(low);
    let mut found = match u8::try_from(low.len()) {
        Ok(past) => vec![jump(JUMP_AT_LEAST, middle.first, past, 0)],
        // The distance exceeds the reach of a conditional jump.
        Err(_) => vec![
            jump(JUMP_AT_LEAST, middle.first, 0, 1),
            jump(JUMP, u32::try_from(low.len()).unwrap_or(u32::MAX), 0, 0),
        ],
    };
    found.extend(low);
    found.extend(search(high));
    found
}

/// Assembles a program that asks about these calls and lets all others pass. It is installed beside
/// the whole program, which kills calls from another architecture.
pub(crate) fn assemble_asking(target: FilterTarget, numbers: &[u32]) -> Vec<FilterInstruction> {
    let mut program = vec![
        load(OFFSET_ARCHITECTURE),
        jump(JUMP_EQUAL, target.architecture, 1, 0),
        give(FilterAction::Allow),
        load(OFFSET_NUMBER),
    ];
    for number in numbers {
        program.push(jump(JUMP_EQUAL, *number, 0, 1));
        program.push(give(FilterAction::Ask));
    }
    program.push(give(FilterAction::Allow));
    program
}

/// Assembles a program that restricts these calls and lets all others pass. It is installed beside
/// the whole program, as above.
pub(crate) fn assemble_beside(
    target: FilterTarget,
    blocks: &[CallBlock],
) -> Vec<FilterInstruction> {
    assemble_or(target, blocks, FilterAction::Allow)
}

const ENOSYS: u16 = 38;

fn body(block: &CallBlock) -> Vec<FilterInstruction> {
    let mut body = Vec::new();
    for rule in &block.rules {
        for (index, test) in rule.tests.iter().enumerate() {
            // The jump skips the remaining tests, two instructions each, and the action.
            let rest = (rule.tests.len() - index - 1) * 2 + 1;
            let past = u8::try_from(rest).unwrap_or(u8::MAX);
            let (offset, code, value) = match *test {
                ArgumentTest::Is(argument, value) => (offset(argument), JUMP_EQUAL, value),
                ArgumentTest::HasAny(argument, bits) => (offset(argument), JUMP_ANY_BIT, bits),
                ArgumentTest::UpperHasAny(argument, bits) => {
                    (offset(argument) + UPPER_HALF, JUMP_ANY_BIT, bits)
                }
            };
            body.push(load(offset));
            body.push(jump(code, value, 0, past));
        }
        body.push(give(rule.action));
    }
    body.push(give(block.otherwise));
    body
}

/// Returns the offset of an argument's low half. Both architectures that have a table are
/// little-endian.
fn offset(argument: usize) -> u32 {
    OFFSET_ARGUMENTS + u32::try_from(argument).unwrap_or(0) * 8
}

fn load(offset: u32) -> FilterInstruction {
    jump(LOAD, offset, 0, 0)
}

fn give(action: FilterAction) -> FilterInstruction {
    jump(RETURN, action.encoded(), 0, 0)
}

fn jump(code: u16, value: u32, jump_true: u8, jump_false: u8) -> FilterInstruction {
    FilterInstruction {
        code,
        jump_true,
        jump_false,
        value,
    }
}

/// Runs a program over one call, as the kernel does. For tests.
#[cfg(test)]
pub(super) fn interpret(
    program: &[FilterInstruction],
    architecture: u32,
    number: u32,
    arguments: [u64; 6],
) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(architecture.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    for argument in arguments {
        data.extend(argument.to_le_bytes());
    }
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let instruction = program[at];
        at += 1;
        let choose = |holds: bool| {
            usize::from(if holds {
                instruction.jump_true
            } else {
                instruction.jump_false
            })
        };
        match instruction.code {
            LOAD => {
                let offset = instruction.value as usize;
                let word = data[offset..offset + 4].try_into().unwrap();
                accumulator = u32::from_le_bytes(word);
            }
            JUMP_EQUAL => at += choose(accumulator == instruction.value),
            JUMP_AT_LEAST => at += choose(accumulator >= instruction.value),
            JUMP_ANY_BIT => at += choose(accumulator & instruction.value != 0),
            JUMP => at += instruction.value as usize,
            RETURN => return instruction.value,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}
