//! Scripts as agents write them: what is not plain must still be seen, command by command.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_command::{describe, lex};

/// Each script with some of the commands that must be seen in it; `?` is a word that only the
/// shell will know.
const SCRIPTS: &[(&str, &[&str])] = &[
    (
        "set -euo pipefail\ncd \"$(git rev-parse --show-toplevel)\"\nfor f in $(git diff --name-only HEAD~1); do\n  echo \"== $f\"\n  wc -l \"$f\"\ndone\n",
        &[
            "git rev-parse --show-toplevel",
            "git diff --name-only HEAD~1",
            "wc -l ?",
        ],
    ),
    (
        "git commit -m \"$(cat <<'EOF'\nFix the parser (again)\n\nIt's the user's \"quotes\" that broke it; see notes.\n\nCo-authored-by: An Agent <agent@example.com>\nEOF\n)\"\n",
        &["git commit -m ?", "cat"],
    ),
    (
        "if ! command -v rg >/dev/null 2>&1; then\n  sudo apt-get install -y ripgrep\nfi\nrg -n 'TODO|FIXME' src | sort | head -20\n",
        &[
            "command -v rg",
            "sudo apt-get install -y ripgrep",
            "head -20",
        ],
    ),
    (
        "python3 - <<'PY'\nimport json, sys\ndata = json.load(open('package.json'))\nfor name, version in sorted(data.get('dependencies', {}).items()):\n    print(f\"{name}: {version}\")\nprint(len(data))\nPY\n",
        &["python3 -"],
    ),
    (
        "cat > src/config.rs <<EOF\npub const HOST: &str = \"${HOST:-localhost}\";\npub fn port() -> u16 { (8000 + 80) as u16 }\nEOF\ncargo check 2>&1 | tail -n 20\n",
        &["cat", "cargo check", "tail -n 20"],
    ),
    (
        "while IFS= read -r line; do\n  case \"$line\" in\n    \\#*) continue ;;\n    *=*) export \"$line\" ;;\n    *) echo \"skipped: $line\" >&2 ;;\n  esac\ndone < .env\n",
        &["read -r line", "export ?", "echo ?"],
    ),
    (
        "build() {\n  local target=\"$1\"\n  mkdir -p \"build/$target\"\n  cmake -S . -B \"build/$target\" -DCMAKE_BUILD_TYPE=\"$target\"\n  cmake --build \"build/$target\" -j\"$(nproc)\"\n}\nbuild Debug && build Release\n",
        &["nproc", "mkdir -p ?", "build Release"],
    ),
    (
        "for i in {1..30}; do\n  if curl -fsS http://127.0.0.1:8080/health >/dev/null; then\n    echo up; break\n  fi\n  sleep 1\ndone\n",
        &["curl -fsS http://127.0.0.1:8080/health", "sleep 1"],
    ),
    (
        "diff <(sort a.txt) <(sort b.txt) > /tmp/diff.out || true\nwc -l < /tmp/diff.out\n",
        &["diff ? ?", "sort a.txt", "sort b.txt"],
    ),
    (
        "npm ci && npm run build && (cd dist && tar czf ../dist.tgz .) && sha256sum dist.tgz > dist.tgz.sha256\n",
        &[
            "npm run build",
            "tar czf ../dist.tgz .",
            "sha256sum dist.tgz",
        ],
    ),
    (
        "find . -name '*.py' -not -path './.venv/*' -print0 | xargs -0 grep -nH \"import os\" | awk -F: '{print $1}' | sort -u > names.txt\n",
        &[
            "xargs -0 grep -nH import os",
            "awk -F: {print $1}",
            "sort -u",
        ],
    ),
    (
        "docker compose up -d db\nuntil docker compose exec -T db pg_isready -U postgres; do sleep 1; done\ndocker compose exec -T db psql -U postgres -c \"select count(*) from users where (id > 10 and (name like 'a%'))\"\n",
        &[
            "docker compose exec -T db pg_isready -U postgres",
            "sleep 1",
        ],
    ),
    (
        "export PATH=\"$HOME/.local/bin:$PATH\" NODE_ENV=test\nnpx jest --coverage 2>&1 | tee test.log\nexit ${PIPESTATUS[0]}\n",
        &["npx jest --coverage", "tee test.log", "exit ?"],
    ),
    (
        "total=0\nfor f in *.log; do\n  n=$(grep -c ERROR \"$f\" || true)\n  total=$((total + n))\n  printf '%s: %d\\n' \"$f\" \"$n\"\ndone\necho \"total: $total\"\n",
        &["grep -c ERROR ?", "printf %s: %d\\n ? ?"],
    ),
    (
        "if [[ \"$(uname -s)\" == \"Darwin\" ]]; then\n  sed -i '' 's/foo/bar/' config.yml\nelse\n  sed -i 's/foo/bar/' config.yml\nfi\n",
        &["uname -s", "sed -i s/foo/bar/ config.yml"],
    ),
    (
        "jq -r '.items[] | select(.status == \"open\") | \"\\(.id) \\(.title)\"' issues.json > open.txt; wc -l open.txt\n",
        &["wc -l open.txt"],
    ),
    (
        "pkill -f 'vite --port 5173' || true\nnohup npm run dev > /tmp/dev.log 2>&1 &\nPID=$!\nsleep 3\nkill -0 \"$PID\" && tail -5 /tmp/dev.log\n",
        &["nohup npm run dev", "kill -0 ?", "tail -5 /tmp/dev.log"],
    ),
    (
        "declare -A ports=([web]=8080 [api]=9090)\nfor name in \"${!ports[@]}\"; do\n  ss -ltn | grep -q \":${ports[$name]} \" && echo \"$name is up\"\ndone\n",
        &["ss -ltn", "grep -q ?"],
    ),
    (
        "tmp=$(mktemp -d)\ntrap 'rm -rf \"$tmp\"' EXIT\ngit clone --depth 1 https://example.com/repo.git \"$tmp/repo\"\n(cd \"$tmp/repo\" && make test)\n",
        &["mktemp -d", "rm -rf ?", "make test"],
    ),
    (
        "psql \"$DATABASE_URL\" <<SQL\nBEGIN;\nUPDATE users SET name = 'O''Brien' WHERE id IN (1, 2, (SELECT max(id) FROM users));\nCOMMIT;\nSQL\n",
        &["psql ?"],
    ),
    (
        "kubectl get pods -n prod -o json | jq -r '.items[] | select(.status.phase != \"Running\") | .metadata.name' | while read -r pod; do kubectl logs -n prod \"$pod\" --tail=50; done\n",
        &[
            "kubectl get pods -n prod -o json",
            "kubectl logs -n prod ? --tail=50",
        ],
    ),
    (
        "VERSION=$(grep -m1 '^version' Cargo.toml | cut -d'\"' -f2)\ngit tag -a \"v${VERSION}\" -m \"Release ${VERSION}\"\ngit push origin \"v${VERSION}\"\n",
        &["cut -d\" -f2", "git push origin ?"],
    ),
    (
        "awk 'BEGIN { FS=\",\" } NR > 1 { sum[$2] += $3 } END { for (k in sum) printf \"%s %d\\n\", k, sum[k] }' data.csv | sort -k2 -nr | head > top.txt\n",
        &["sort -k2 -nr"],
    ),
    (
        "files=(src/a.ts src/b.ts \"src/c d.ts\")\nfor file in \"${files[@]}\"; do\n  npx prettier --write \"$file\" || { echo \"failed: $file\"; exit 1; }\ndone\n",
        &["npx prettier --write ?", "exit 1"],
    ),
    (
        "ssh -o BatchMode=yes deploy@host 'cd /srv/app && git pull && systemctl --user restart app' > deploy.log 2>&1\ntail -n 3 deploy.log\n",
        &["tail -n 3 deploy.log"],
    ),
    (
        "cat <<'JSON' | curl -sS -X POST -H 'Content-Type: application/json' -d @- http://localhost:3000/api/items\n{\"name\": \"it's (a) test\", \"tags\": [\"x\", \"y\"], \"nested\": {\"a\": {\"b\": [1, 2, (3)]}}}\nJSON\n",
        &[
            "cat",
            "curl -sS -X POST -H Content-Type: application/json -d @- http://localhost:3000/api/items",
        ],
    ),
    (
        "[ -f .venv/bin/activate ] || python3 -m venv .venv\n.venv/bin/pip install -q -r requirements.txt\n.venv/bin/python -c \"\nimport app\nprint(app.version(), len(app.routes()), (1, (2, (3, 4))))\n\"\necho \"exit: $?\"\n",
        &[
            "python3 -m venv .venv",
            ".venv/bin/pip install -q -r requirements.txt",
        ],
    ),
    (
        "for dir in packages/*/; do\n  name=$(basename \"$dir\")\n  if [ -f \"$dir/package.json\" ] && ! grep -q '\"private\": true' \"$dir/package.json\"; then\n    (cd \"$dir\" && npm pack --pack-destination ../../out) # one by one (they share a lock)\n  fi\ndone\n",
        &["basename ?", "npm pack --pack-destination ../../out"],
    ),
    (
        "echo \"date: $(date -u +%Y-%m-%dT%H:%M:%SZ), host: $(hostname), disk: $(df -h / | awk 'NR==2 {print $5}'), load: $(cut -d' ' -f1 /proc/loadavg), mem: $(free -m | awk '/Mem/ {print $3\"/\"$2}'), up: $(uptime -p), who: $(whoami), kernel: $(uname -r)\"\n",
        &["date -u +%Y-%m-%dT%H:%M:%SZ", "df -h /", "uname -r"],
    ),
];

#[test]
fn everyday_scripts_are_seen_in_full() {
    for (script, expected) in SCRIPTS {
        assert!(
            lex(script).is_err(),
            "plain, and not for this list: {script}"
        );
        let description = describe(script);
        assert_eq!(description.unseen, None, "{script}");
        let seen: Vec<String> = description
            .commands
            .iter()
            .map(|words| words.join(" ").replace('\0', "?"))
            .collect();
        for command in *expected {
            assert!(
                seen.iter().any(|seen| seen == command),
                "{command:?} is not among {seen:#?}"
            );
        }
    }
}

#[test]
fn the_list_is_long() {
    assert!(SCRIPTS.len() >= 25);
}

#[test]
fn truly_dynamic_scripts_are_said_to_be() {
    for script in [
        "cmd=\"$1\"; shift; $cmd \"$@\"",
        "eval \"$(ssh-agent -s)\" && ssh-add",
        "source .venv/bin/activate && pytest",
        "$(which python3) x.py",
        "\"${EDITOR:-vi}\" notes.txt > /tmp/x",
    ] {
        assert!(describe(script).unseen.is_some(), "{script}");
    }
}
