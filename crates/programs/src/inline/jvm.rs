//! Programs of the Java virtual machine: languages with `-e`, and the launcher with its agents.

use super::grammar::{Grammar, OptionOrder, ProgramGrammar, code, config, loads, program, writes};
use super::hit::{HitKind, InlineHit};
use super::matcher::{Invocation, ParsedLine};

const TEXT: &str = "the argument is program text";
const AGENT: &str = "loads an agent into the virtual machine";
const OPTIONS_FROM_FILE: &str = "options come from a file";

/// Languages, as they appear in the inline table.
pub(super) const INTERPRETERS: &[ProgramGrammar] = &[
    ProgramGrammar::inspected(&["groovy"], &GROOVY, groovy_text),
    ProgramGrammar::table(&["scala", "scala-cli"], &SCALA),
    ProgramGrammar::table(&["clojure", "clj"], &CLOJURE),
    ProgramGrammar::table(&["kotlin", "jrunscript"], &JRUNSCRIPT),
];

/// Tools that only some options make dangerous.
pub(super) const TOOLS: &[ProgramGrammar] = &[
    ProgramGrammar::table(&["java", "javaw"], &JAVA),
    ProgramGrammar::table(&["javac", "javadoc"], &JAVAC),
    ProgramGrammar::table(&["jshell"], &JSHELL),
    ProgramGrammar::table(&["mvn", "mvnw", "mvnd"], &MAVEN),
    ProgramGrammar::table(&["gradle", "gradlew"], &GRADLE),
    ProgramGrammar::table(&["ant"], &ANT),
];

const GROOVY: Grammar = Grammar {
    rules: &[
        loads("-configscript", "runs a file while compiling"),
        loads("-l", "runs the program for each connection to a port").attached(),
    ],
    long_values: &["-c", "-classpath", "-cp", "-encoding", "-D"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

/// Finds `-e`, also in a cluster after `n`, `p`, `a` or `i`, with the text attached or not.
/// `-encoding` is another option.
fn groovy_text(call: &Invocation<'_>, parsed: &ParsedLine<'_>) -> Vec<InlineHit> {
    let is_text = |index: usize| {
        let token = call.argv[index];
        let letters = token.strip_prefix('-').unwrap_or_default();
        token != "-encoding"
            && !token.starts_with("--")
            && letters
                .trim_start_matches(['n', 'p', 'a', 'i'])
                .starts_with('e')
    };
    let options = parsed.options.iter().map(|option| option.index);
    let texts = options.filter(|&index| is_text(index));
    texts
        .map(|index| call.hit("-e", HitKind::Code, index, TEXT))
        .collect()
}

const SCALA: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("--execute-script", TEXT),
        code("--execute-sc", TEXT),
        code("--execute-scala-script", TEXT),
        code("--execute-scala", TEXT),
        code("--execute-java", TEXT),
        code("--execute-markdown", TEXT),
        code("--execute-md", TEXT),
        code("--script-snippet", TEXT),
        code("--scala-snippet", TEXT),
        code("--java-snippet", TEXT),
        code("--markdown-snippet", TEXT),
        code("--md-snippet", TEXT),
        loads("-i", "loads a file before the program"),
        loads("--java-agent", AGENT),
        loads("--compiler-plugin", "loads a plug-in into the compiler"),
    ],
    ..Grammar::WORDS
};

const CLOJURE: Grammar = Grammar {
    rules: &[
        code("-e", TEXT),
        code("--eval", TEXT),
        loads("-i", "loads a file before the program"),
        loads("--init", "loads a file before the program"),
        loads("-Sdeps", "names dependencies to fetch and load"),
    ],
    long_values: &["-Scp", "-Sthreads"],
    terminators: &["-m", "--main"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const JRUNSCRIPT: Grammar = Grammar {
    rules: &[code("-e", TEXT), code("-expression", TEXT)],
    long_values: &["-cp", "-classpath", "-encoding", "-l", "-f"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const JAVA: Grammar = Grammar {
    rules: &[
        loads("-javaagent*", AGENT).attached(),
        loads("-agentlib*", AGENT).attached(),
        loads("-agentpath*", AGENT).attached(),
        loads("-Xrun*", AGENT).attached(),
        loads(
            "-Xbootclasspath*",
            "replaces classes of the virtual machine",
        )
        .attached(),
        loads("--patch-module", "replaces classes of a module"),
        loads(
            "--upgrade-module-path",
            "replaces modules of the virtual machine",
        ),
        loads(
            "-Djava.system.class.loader*",
            "names the class that loads all others",
        )
        .attached(),
        loads(
            "-XX:SharedArchiveFile*",
            "starts from a stored program state",
        )
        .attached(),
        program("-XX:OnError*", "names a command to run on a crash").attached(),
        program(
            "-XX:OnOutOfMemoryError*",
            "names a command to run on a crash",
        )
        .attached(),
        config("-XX:Flags*", OPTIONS_FROM_FILE).attached(),
        config("-XX:VMOptionsFile*", OPTIONS_FROM_FILE).attached(),
        config("@*", OPTIONS_FROM_FILE).called("@file"),
        writes("-Xloggc*", "writes a log").attached(),
    ],
    long_values: &[
        "-cp",
        "-classpath",
        "--class-path",
        "-p",
        "--module-path",
        "--add-modules",
        "--add-reads",
        "--add-exports",
        "--add-opens",
        "--limit-modules",
        "--enable-native-access",
        "--source",
        "-d",
        "--describe-module",
    ],
    // The program follows these options, and then its own arguments.
    terminators: &["-jar", "-m", "--module"],
    order: OptionOrder::Until(1),
    ..Grammar::WORDS
};

const JAVAC: Grammar = Grammar {
    rules: &[
        loads("-processor", "loads an annotation processor"),
        loads(
            "-processorpath",
            "annotation processors come from elsewhere",
        ),
        loads(
            "--processor-path",
            "annotation processors come from elsewhere",
        ),
        loads(
            "--processor-module-path",
            "annotation processors come from elsewhere",
        ),
        loads("-Xplugin*", "loads a plug-in into the compiler").attached(),
        loads("-doclet", "loads a class that writes the documentation"),
        loads("-J*", "options of the virtual machine can load code").attached(),
        config("@*", OPTIONS_FROM_FILE).called("@file"),
    ],
    ..Grammar::WORDS
};

const JSHELL: Grammar = Grammar {
    rules: &[
        loads("--startup", "runs the snippets of a file"),
        loads("-R*", "options of the virtual machine can load code").attached(),
        loads("-J*", "options of the virtual machine can load code").attached(),
    ],
    ..Grammar::WORDS
};

const OTHER_BUILD: &str = "another build file decides what runs";

const MAVEN: Grammar = Grammar {
    rules: &[
        config("-f", OTHER_BUILD),
        config("--file", OTHER_BUILD),
        config("-s", "other settings name repositories and plug-ins"),
        config(
            "--settings",
            "other settings name repositories and plug-ins",
        ),
        config("-gs", "other settings name repositories and plug-ins"),
        config(
            "--global-settings",
            "other settings name repositories and plug-ins",
        ),
        config("-t", "another toolchain names programs"),
        config("--toolchains", "another toolchain names programs"),
        loads("-Dmaven.ext.class.path*", "loads extensions into the build").attached(),
        program("-Dexec.executable*", "names a program to run").attached(),
    ],
    long_values: &[
        "-l",
        "--log-file",
        "-pl",
        "--projects",
        "-P",
        "-T",
        "--threads",
        "-rf",
    ],
    ..Grammar::WORDS
};

const GRADLE: Grammar = Grammar {
    rules: &[
        loads("-I", "runs a file before the build"),
        loads("--init-script", "runs a file before the build"),
        config("-b", OTHER_BUILD),
        config("--build-file", OTHER_BUILD),
        config("-c", OTHER_BUILD),
        config("--settings-file", OTHER_BUILD),
        config("-p", OTHER_BUILD),
        config("--project-dir", OTHER_BUILD),
        config("--include-build", OTHER_BUILD),
        config("-g", "another home holds init scripts"),
        config("--gradle-user-home", "another home holds init scripts"),
        config(
            "-Dorg.gradle.java.home*",
            "names the virtual machine to start",
        )
        .attached(),
        config(
            "-Dorg.gradle.jvmargs*",
            "options of the virtual machine can load code",
        )
        .attached(),
    ],
    ..Grammar::WORDS
};

const ANT: Grammar = Grammar {
    rules: &[
        config("-f", OTHER_BUILD),
        config("-file", OTHER_BUILD),
        config("-buildfile", OTHER_BUILD),
        config("-s", OTHER_BUILD),
        config("-find", OTHER_BUILD),
        loads("-lib", "loads classes from elsewhere"),
        loads("-logger", "loads a class that writes the log"),
        loads("-listener", "loads a class that follows the build"),
        loads("-inputhandler", "loads a class that answers questions"),
        loads("-main", "loads a class in place of Ant's own"),
    ],
    ..Grammar::WORDS
};
