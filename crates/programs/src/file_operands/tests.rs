#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

fn argv(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The paths that a line names and whether it reads its directory; `Err` with the refused position.
fn read(line: &str) -> Result<(Vec<String>, bool), usize> {
    let argv = argv(line);
    let used = file_use(&argv).map_err(|refused| refused.index)?;
    let paths = used.operands.iter().map(|operand| operand.path.to_owned());
    Ok((paths.collect(), used.reads_cwd))
}

fn files(line: &str) -> Vec<String> {
    read(line)
        .unwrap_or_else(|index| panic!("{line}: argument {index} is refused"))
        .0
}

#[test]
fn operands_of_known_programs_are_files() {
    for (line, expected) in [
        ("cat a b", "a b"),
        ("cat -n -- -x a", "-x a"),
        ("cat a -n", "a"),
        ("cat - a", "a"),
        ("head -50 a", "a"),
        ("head -n 5 a", "a"),
        ("tail -n+2 a", "a"),
        ("grep -rn x src", "src"),
        ("grep -e x src", "src"),
        ("grep -rne x src", "src"),
        ("grep -f p x", "p x"),
        ("grep --file=p x", "p x"),
        ("rg x", ""),
        ("rg -n x src", "src"),
        ("rg --files src", "src"),
        ("rg -g *.rs x src", "src"),
        ("sort -k 2 -t , a", "a"),
        ("uniq -c a", "a"),
        ("cut -d, -f1 a", "a"),
        ("find . -name *.rs -newer a", ". a"),
        ("date +%s -r a", "a"),
        ("echo /etc/passwd", ""),
        ("printf -v x /etc/passwd", ""),
        ("jq .a b.json", "b.json"),
        ("jq --arg k /etc/x .a b.json", "b.json"),
        ("sed -n 1,80p a", "a"),
        ("sed -n -e 1p a", "a"),
        ("git diff HEAD~1 src", "HEAD~1 src"),
        ("git --no-pager log --oneline -10", ""),
        ("git blame -L 1,5 a", "1,5 a"),
        ("git ls-files -X x", "x"),
        ("git branch --list x*", ""),
        ("tree -L 2 src", "2 src"),
        ("which -a cat", ""),
        ("diff -u a b", "a b"),
        ("awk {print$1} a", "a"),
        ("awk {print$1<\"x\"} a", "a"),
        ("awk /ERROR/{print$1} a", "a"),
        ("jq .env a", "a"),
        ("jq -R .a.import a", "a"),
        ("find . -newermt 2024-01-01 -newerca a", ". a"),
        ("grep -e -x a", "a"),
        ("head -n -5 a", "a"),
        ("date -d -1day", ""),
        // What may be an operand instead of a value counts as a file.
        ("git diff -U /etc/hostname a", "/etc/hostname a"),
        ("git log -n 5 --author me", "5 me"),
        ("git remote -v", ""),
        ("git remote get-url origin", ""),
        ("git tag", ""),
        ("git tag -l v*", ""),
        ("git tag -n1", ""),
        ("git describe --tags --abbrev=0", ""),
        ("git ls-tree -r HEAD --name-only", "HEAD"),
        ("git cat-file -p HEAD", "HEAD"),
        ("git merge-base main HEAD", "main HEAD"),
        ("git rev-list --count HEAD", "HEAD"),
        ("git shortlog -sn", ""),
        ("git reflog -5", ""),
        ("git reflog show HEAD", "show HEAD"),
        ("git show-ref --heads", ""),
        ("git for-each-ref --format=%(refname) refs/heads", ""),
        ("git check-ignore -v target", "target"),
        ("git grep -n x src", "src"),
        ("awk -F: NR==1{print$NF} a", "a"),
        ("awk {s+=$1}END{print(s)} a", "a"),
        ("git -C sub status -s", ""),
        ("git -P -c color.ui=never -C sub log a", "a"),
        ("git stash list", ""),
        ("git stash show -p x", "x"),
        ("git config --get user.name", ""),
        ("git config Remote.origin.URL", ""),
        ("git symbolic-ref --short HEAD", ""),
        ("git diff-tree -r --name-only HEAD", "HEAD"),
        ("tac -s , a", "a"),
        ("fold -80 a", "a"),
        ("join -t , -1 2 a b", "a b"),
        ("xxd -c 16 -s -4 a", "a"),
        ("xxd -cols 16", "16"),
        ("hexdump -Cn 64 a", "a"),
        ("strings -n 8 a", "a"),
        ("expr /etc/passwd : x", ""),
    ] {
        let expected: Vec<&str> = expected
            .split(' ')
            .filter(|word| !word.is_empty())
            .collect();
        assert_eq!(files(line), expected, "{line}");
    }
}

#[test]
fn what_follows_links_writes_or_starts_programs_is_refused() {
    for line in [
        "ls -L",
        "ls -aL",
        "ls -lH",
        "ls --dereference",
        "cat --numb",
        "tail -F a",
        "tail --follow=name a",
        "wc --files0-from=x",
        "rg --pre x y",
        "rg --pre=x y",
        "rg -z x",
        "rg -nz x",
        "rg -L x",
        "rg --follow x",
        "rg --hostname-bin x y",
        "rg --ignore-file x y",
        "grep -R x",
        "grep -nR x",
        "grep --dereference-recursive x",
        "find -L .",
        "find . -follow",
        "find . -exec x ;",
        "find . -execdir x ;",
        "find . -ok x ;",
        "find . -okdir x ;",
        "find . -delete",
        "find . -fprint x",
        "find . -fprint0 x",
        "find . -fprintf x y",
        "find . -fls x",
        "find -files0-from x",
        "find . -newerxt x",
        "find -H .",
        "find -D all .",
        "tree -o x",
        "tree -Lo 2 x",
        "tree -l",
        "tree --fromfile",
        "tree -R -H x",
        "file -f x",
        "file -m x a",
        "file -C",
        "file -z a",
        "du -L",
        "du --files0-from=x",
        "du -X x",
        "date -s x",
        "date --set=x",
        "date -f x",
        "date 01010101",
        "uname x",
        "whoami x",
        "sort -o x a",
        "sort a -o x",
        "sort -ox a",
        "sort -uox a",
        "sort --output=x a",
        "sort --outp=x a",
        "sort --compress-program=x a",
        "sort --compress-prog=x a",
        "sort -T x a",
        "sort --files0-from=x",
        "sort --random-source=x a",
        "uniq a b",
        "diff -l a b",
        "diff --from-file=a b",
        "diff --to-file a b",
        "diff -X x a b",
        "jq -f x a",
        "jq -nf x",
        "jq -L x .a",
        "jq --slurpfile a x .a",
        "jq --rawfile a x .a",
        "jq --args .a b",
        "jq env a",
        "jq $ENV.HOME a",
        "jq ..env a",
        "jq .[env.HOME] a",
        "jq \"\\(env.HOME)\"",
        "jq import\"x\"as$x;.",
        "jq include\"x\";.",
        "jq $__prog_args",
        "jq .[]|input_filename a",
        "sed -i s/a/b/ a",
        "sed --in-place s/a/b/ a",
        "sed -n -i.bak p a",
        "sed -f x a",
        "sed w/etc/x a",
        "sed 1r/etc/passwd a",
        "sed 1e a",
        "sed s/a/b/e a",
        "sed --sandbox 1r/etc/passwd a",
        "sed -n -e p -e w/tmp/x a",
        "git --git-dir=x status",
        "git --git-dir x status",
        "git -c a=b status",
        "git --work-tree=x status",
        "git --exec-path=x status",
        "git diff --no-index a b",
        "git diff --ext-diff",
        "git diff --output=x",
        "git diff --outp=x",
        "git log --output x",
        "git log -Ox",
        "git log --show-signature",
        "git diff --textconv",
        "git branch x",
        "git branch -d x",
        "git branch -l x",
        "git branch -D x",
        "git branch --edit-description",
        "git push",
        "git commit -m x",
        "git config x y",
        "git rev-parse --resolve-git-dir x",
        "git ls-files --recurse-submodules",
        "git blame -S x a",
        "git",
        // An option that takes its value only if it is attached is followed by one more option.
        "git log -U --output=/tmp/x -p",
        "git log --format --output=/tmp/x",
        "git log --max-parents --output=/tmp/x",
        "git show --unified --output=/tmp/x",
        "git diff -L --output=/tmp/x",
        "git rev-list -n --output=/tmp/x HEAD",
        "git tag --sort -d x",
        "git ls-files -x --recurse-submodules",
        "tree --sort -o x",
        "tree -L -o x",
        "sort -k --compress-program=x a",
        "git grep -O x",
        "git grep -Oless x",
        "git grep --open-files-in-pager x",
        "git grep --no-index x",
        "git grep --untracked x",
        "git grep -f x",
        "git grep --textconv x",
        "git grep --recurse-submodules x",
        "git tag x",
        "git tag -d x",
        "git tag -a -m x y",
        "git tag -v x",
        "git tag --sort=x y",
        "git remote show origin",
        "git remote add x ext::sh",
        "git remote -v update",
        "git remote prune origin",
        "git worktree add x",
        "git worktree list",
        "git worktree prune",
        "git worktree",
        "git describe --dirty",
        "git cat-file --textconv HEAD:a",
        "git cat-file --filters HEAD:a",
        "git cat-file --batch",
        "git reflog expire --all",
        "git reflog -5 delete HEAD@{1}",
        "git check-ignore --stdin",
        "git rev-list --stdin",
        "git rev-list --bisect-all --exclude-from=x HEAD",
        "git ls-remote",
        "awk {print>\"x\"} a",
        "awk {print|\"sh\"} a",
        "awk BEGIN{system(\"x\")}",
        "awk BEGIN{system\t(\"x\")}",
        "awk BEGIN{getline}",
        "awk BEGIN{print(ENVIRON[\"HOME\"])}",
        "awk BEGIN{ARGV[1]=\"/etc/passwd\"}",
        "awk -f x a",
        "awk @load\"x\"",
        "awk -i x p",
        "awk {f(1)}",
        "awk PROCINFO[1]",
        // These are files to awk.
        "awk {print} -v /etc/passwd",
        "awk {print} -F /etc/passwd",
        "awk {print} a --assign /etc/passwd",
        "awk {print} -- a",
        // A second directory, another option or a setting in front of the subcommand.
        "git -C a -C b status",
        "git -C sub push",
        "git -C  status",
        "git -Csub status",
        "git -c core.fsmonitor=x status",
        "git -c core.pager=less log",
        "git -c color.ui=never --git-dir=x log",
        "git config",
        "git config -l",
        "git config --list",
        "git config user.name x",
        "git config --get user.name x",
        "git config --get http.extraheader",
        "git config --get credential.helper",
        "git config --get-regexp .",
        "git config url.x.insteadof",
        "git config set user.name",
        "git config -f x user.name",
        "git symbolic-ref HEAD refs/heads/x",
        "git symbolic-ref -d HEAD",
        "git stash",
        "git stash pop",
        "git stash show --output=x",
        "git stash list --ext-diff",
        "git diff-tree --stdin",
        "git count-objects x",
        // The second file is written, and the letters are no cluster.
        "xxd a b",
        "xxd -p a b",
        "xxd -- a b",
        "xxd a -s b",
        "xxd -r a",
        "xxd -pl /etc/passwd",
        "xxd -ps /etc/passwd",
        "hexdump -f x a",
        "hexdump -e x a",
        "strings @a",
        "strings -- @a",
        "strings -n @a b",
        "strings -T x a",
        "hostname x",
        "hostname -F a",
        "groups root",
        "sha384sum -c a",
    ] {
        assert!(read(line).is_err(), "{line}");
    }
}

#[test]
fn programs_without_files_look_at_their_directory() {
    for (line, expected) in [
        ("ls", true),
        ("ls -la", true),
        ("ls src", false),
        ("rg x", true),
        ("rg x src", false),
        ("grep -r x", true),
        ("grep x", false),
        ("grep x a", false),
        ("find", true),
        ("find -name x", true),
        ("find src -name x", false),
        ("du -sh", true),
        ("tree", true),
        ("git status", true),
        ("git log a", true),
        ("cat", false),
        ("head -5", false),
        ("echo x", false),
        ("unknown", true),
    ] {
        assert_eq!(read(line).unwrap().1, expected, "{line}");
    }
}

#[test]
fn directories_are_no_operands_of_what_reads_the_links_in_them() {
    let wants = |line: &str| file_use(&argv(line)).unwrap().operands[0].wants;
    assert_eq!(wants("diff -r a b"), OperandKind::NotDirectory);
    assert_eq!(wants("diff a b"), OperandKind::NotDirectory);
    assert_eq!(wants("diff -r --no-dereference a b"), OperandKind::Any);
    assert_eq!(wants("cat a"), OperandKind::Any);
}

#[test]
fn everything_that_could_be_a_path_counts_for_unknown_programs() {
    for (line, expected) in [
        ("x a /b", "a /b"),
        ("x --o=/b", "/b"),
        ("x -f/b", "/b b"),
        ("x -ab/c", "b/c /c c"),
        ("x if=/b", "if=/b /b"),
        ("x @/b", "@/b /b"),
        ("x h:/b", "h:/b /b"),
        ("x -", ""),
        ("x -v", ""),
    ] {
        let expected: Vec<&str> = expected
            .split(' ')
            .filter(|word| !word.is_empty())
            .collect();
        assert_eq!(files(line), expected, "{line}");
    }
    assert!(read("python3 -c x").is_err());
    assert!(read("tar --to-command=x -xf a").is_err());
}

#[test]
fn git_is_kept_from_what_a_repository_may_name() {
    let argv = argv("git status");
    let used = file_use(&argv).unwrap();
    assert!(used.reads_repository);
    let value = |name: &str| {
        let found = used.environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(value("GIT_OPTIONAL_LOCKS"), Some("0"));
    let count: usize = value("GIT_CONFIG_COUNT").unwrap().parse().unwrap();
    let is_off = (0..count).any(|index| {
        value(&format!("GIT_CONFIG_KEY_{index}")) == Some("core.fsmonitor")
            && value(&format!("GIT_CONFIG_VALUE_{index}")) == Some("false")
    });
    assert!(is_off);
}

#[test]
fn a_version_is_shown_by_a_whole_call_of_the_table_only() {
    let shows = |line: &str| file_use(&argv(line)).is_ok_and(|used| used.only_version);
    for line in [
        "go version",
        "java -version",
        "node -v",
        "python3 -V",
        "gcc --version",
        "/usr/bin/docker --version",
    ] {
        assert!(shows(line), "{line}");
        assert!(!shows(&format!("{line} x")), "{line}");
    }
    for line in [
        "docker version",
        "go env",
        "java",
        "java -VERSION",
        "cargo --version",
        "mvn --version",
        "yarn --version",
        "bash --version",
        "unknown --version",
    ] {
        assert!(!shows(line), "{line}");
    }
    let call = argv("go version");
    let environment = file_use(&call).unwrap().environment;
    let local = ("GOTOOLCHAIN".to_owned(), "local".to_owned());
    assert_eq!(environment, [local]);
}

#[test]
fn an_option_for_the_directory_is_read_as_one_only_in_front() {
    for (line, expected) in [
        ("make -C sub all", Some("sub")),
        ("ninja -C sub", Some("sub")),
        ("terraform -chdir=sub plan", Some("sub")),
        ("make all", None),
    ] {
        let argv = argv(line);
        let used = file_use(&argv).unwrap();
        assert_eq!(used.directory.map(|one| one.path), expected, "{line}");
        assert!(used.reads_cwd, "{line}");
        assert!(!used.operands.iter().any(|one| one.path == "sub"), "{line}");
    }
    for line in [
        "make all -C sub",
        "make -C sub -C ..",
        "make -Csub",
        "make --directory=sub",
        "make -C sub -f x",
        "terraform plan -chdir=sub",
        "terraform -chdir=sub -chdir=..",
        "ninja -C sub -f x",
    ] {
        assert!(file_use(&argv(line)).is_err(), "{line}");
    }
}

#[test]
fn options_that_are_words_have_no_letters_but_options_for_others_do() {
    let paths = |words: &[&str]| {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let used = file_use(&argv).unwrap();
        let paths = used.operands.iter().map(|one| one.path.to_owned());
        paths.collect::<Vec<String>>()
    };
    assert_eq!(
        paths(&["terraform", "plan", "-var-file=env/a.tfvars"]),
        ["plan", "env/a.tfvars"]
    );
    assert_eq!(
        paths(&["go", "test", "-coverprofile=/tmp/x"]),
        ["test", "/tmp/x"]
    );
    let linked = paths(&["go", "build", "-tags", "-x /tmp/evil"]);
    assert!(linked.contains(&"/tmp/evil".to_owned()), "{linked:?}");
    let other = paths(&["tool", "-o/tmp/x"]);
    assert!(other.contains(&"/tmp/x".to_owned()), "{other:?}");
}

#[test]
fn git_is_sent_to_a_directory_by_its_option() {
    let argv = argv("git -C sub log a");
    let used = file_use(&argv).unwrap();
    let directory = used.directory.unwrap();
    assert_eq!((directory.path, directory.index), ("sub", 2));
    assert!(used.reads_repository);
}
