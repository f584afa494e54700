//! Staged files where nothing can be mounted: a library in the ranks shows them the copies.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use wireup_e2e::folders::Folder;
use wireup_e2e::{Run, folders};
use xtask::layout;

/// Copies the program under test together with its C libraries, as `wireup install` would install them.
pub fn with_libraries(folder: &Folder) -> PathBuf {
    let library = xtask::libraries::file(xtask::libraries::STAGED);
    let built = xtask::libraries::build().expect("build the C libraries").join(&library);
    let bin = folder.folder("installed");
    let bytes = fs::copy(built, bin.join(library)).expect("the library");
    assert!(bytes <= 64 << 10, "{bytes} bytes");
    let program = bin.join("wireup");
    folders::copy_program(&wireup_e2e::wireup(), &program);
    program
}

/// The flag of `setpriv` that takes the right to mount from a job; on virtual nodes, a user namespace does not replace
/// that right.
pub const WITHOUT_RIGHTS: &str = "--bounding-set=-sys_admin";

/// A staged folder with the programs and libraries of a test.
struct Staged {
    folder: Folder,
    env: PathBuf,
    wireup: PathBuf,
}

impl Staged {
    fn new() -> Staged {
        let folder = Folder::new("staging");
        let env = folder.at("env");
        let at = |name: &str| env.join(name);
        folder.write("env/data", "data\n");
        folder.write("env/dir/sub/file", "file\n");
        let open = folder.write("env/open", "open\n");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).expect("its bits");
        folder.write("outside/secret", "secret\n");
        fs::create_dir_all(at("bin")).expect("a folder");
        fs::create_dir_all(at("lib")).expect("a folder");
        symlink("dir/sub", at("near")).expect("a link");
        symlink("../outside", at("out")).expect("a link");
        symlink(folder.at("outside"), at("absolute")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        let source = layout::root().join("dev/programs/staged");
        compile(&["-w", "-fexceptions", "-o"], &at("bin/shown"), &source.join("shown.c"), &["-ldl", "-lpthread"]);
        compile(&["-shared", "-fPIC", "-o"], &at("lib/libwaits.so"), &source.join("waits.c"), &[]);
        compile(&["-w", "-static", "-o"], &at("bin/still"), &source.join("still.c"), &[]);
        let library = folder.write("one.c", "int one(void) { return 1; }\n");
        compile(&["-shared", "-fPIC", "-o"], &at("lib/libone.so"), &library, &[]);
        fs::create_dir_all(at("lib/twice")).expect("a folder");
        fs::copy(at("lib/libone.so"), at("lib/twice/libtwice.so")).expect("a copy");
        let mut foreign = fs::read(at("lib/libone.so")).expect("a library");
        // The ELF machine number of another processor (s390).
        foreign[18..20].copy_from_slice(&[22, 0]);
        fs::write(at("lib/libtwice.so"), foreign).expect("a library");
        folder.program("env/bin/script", "echo script \"$0\" \"$@\"");
        folder.program("env/bin/count", "echo $#");
        let words = format!("#!{} {}\n", at("bin/shown").display(), env.display());
        for (name, content) in [("own-script", words), ("plain", "echo plain $0 $1\n".into())] {
            let path = folder.write(&format!("env/bin/{name}"), content.as_bytes());
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its bits");
        }
        let wireup = with_libraries(&folder);
        Staged { env, wireup, folder }
    }

    /// A job of one rank that has no right to mount.
    fn job(&self, words: &str) -> Run {
        self.job_with(&[WITHOUT_RIGHTS], words)
    }

    fn job_with(&self, rights: &[&str], words: &str) -> Run {
        self.run(rights, &["--stage-library"], words)
    }

    fn run(&self, rights: &[&str], how: &[&str], words: &str) -> Run {
        Run::tool("setpriv", rights)
            .arg(&self.wireup)
            .args(["run", "-n", "1", "--virtual-nodes", "2", "--pmi", "simple", &self.folder.stage()])
            .args(how)
            .arg("--stage-also")
            .arg(&self.env)
            .args(words.split_whitespace())
            .cwd(Path::new("/"))
    }

    /// A run with two folders in which the dynamic loader looks for libraries.
    fn searched(&self, run: Run) -> Run {
        let folder = self.env.join("lib").display().to_string();
        run.env("LD_LIBRARY_PATH", format!("{folder}:{folder}/twice"))
    }

    /// Names, permission bits, times and contents of the files that the node stores.
    fn kept(&self) -> String {
        let script = "cd $0/sets/*/tree && find . -printf '%P %m %s %T@ %y\\n' | sort && find . -type f | sort | xargs \
            cat | cksum";
        let listed = Command::new("sh").args(["-c", script]).arg(self.folder.at("store")).output().expect("a listing");
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }
}

fn compile(before: &[&str], program: &Path, source: &Path, after: &[&str]) {
    let mut cc = Command::new("cc");
    let done = cc.arg("-O1").args(before).arg(program).arg(source).args(after).output().expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_program_sees_copies_that_it_cannot_change() {
    let staged = Staged::new();
    let program = staged.env.join("bin/shown");
    staged.job("").arg("true").succeed().expect_err_line(&["its ranks see the staged files through a library"]);
    let before = staged.kept();
    assert!(before.contains("bin/shown") && before.contains("dir/sub/file"), "{before}");
    let run = staged.searched(staged.job("").arg(&program).arg(&staged.env).env("odd.name-1", "odd"));
    let outcome = run.finish();
    assert_eq!(outcome.out(), "as it should be\n", "{outcome}");
    outcome.expect_code(0);
    assert_eq!(staged.kept(), before);
    let left = fs::read_dir(staged.folder.at("store/sets")).expect("sets").flatten();
    let left = left.flat_map(|set| fs::read_dir(set.path()).expect("a set").flatten());
    let left: Vec<_> = left.filter(|inside| inside.file_name().to_string_lossy().starts_with("shown-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Without the switch, wireup does not load its library into ranks.
#[test]
fn without_the_switch_ranks_use_the_originals() {
    let staged = Staged::new();
    let program = staged.env.join("bin/shown").display().to_string();
    let words = format!("{program} {} child", staged.env.display());
    let outcome = staged.run(&[WITHOUT_RIGHTS], &[], &words).succeed();
    assert_eq!(outcome.out(), format!("original {program}\n"), "{outcome}");
    outcome.expect_err_line(&["its ranks use the original files", "no mount", "--stage-library"]);
    let outcome = staged.run(&[WITHOUT_RIGHTS], &[], "sh -c").arg("echo $LD_PRELOAD$LD_AUDIT$WIREUP_STAGED.").finish();
    assert_eq!(outcome.expect_code(0).out(), ".\n");
    staged
        .run(&[WITHOUT_RIGHTS], &["--stage=require"], "true")
        .finish()
        .expect_err_line(&["cannot be shown", "--stage-library"]);
    let library = staged.wireup.with_file_name(xtask::libraries::file(xtask::libraries::STAGED));
    fs::remove_file(library).expect("the library");
    let outcome = staged.job("true").finish().expect_code(125);
    outcome.expect_err_line(&["--stage-library: libwireup-staged.so.0.0.0 is neither in", "wireup install"]);
}

/// For a user other than root, the kernel also keeps programs from changing the copies.
#[test]
fn a_user_without_rights_sees_copies_that_nothing_can_change() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: it needs root");
        return;
    }
    let staged = Staged::new();
    let run = staged.folder.at("run");
    fs::create_dir_all(&run).expect("a folder");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).expect("its bits");
    let user = "65534";
    let owned = Command::new("chown").args(["-Rh", user]).arg(&staged.folder.0).status().expect("chown");
    assert!(owned.success());
    let rights = [&format!("--reuid={user}")[..], &format!("--regid={user}"), "--clear-groups"];
    let job = staged.job_with(&rights, "").arg(staged.env.join("bin/shown")).arg(&staged.env);
    let job = ["WIREUP_RUNTIME_DIR", "TMPDIR", "HOME"].into_iter().fold(job, |job, name| job.env(name, &run));
    let outcome = staged.searched(job.env("odd.name-1", "odd")).finish();
    assert_eq!(outcome.out(), "as it should be\n", "{outcome}");
    outcome.expect_code(0).expect_err_line(&["its ranks see the staged files through a library"]);
}

/// A process that a rank has started outlives the job, and starts other programs with the rank's environment.
#[test]
fn the_environment_is_of_no_harm_when_the_job_is_over() {
    let staged = Staged::new();
    let outcome = staged.job("sh -c").arg("echo $LD_AUDIT $LD_PRELOAD $WIREUP_STAGED").succeed();
    let out = outcome.out();
    let words: Vec<&str> = out.split_whitespace().collect();
    let [audit, preload, map] = words[..] else { panic!("{outcome}") };
    assert!(Path::new(audit).is_file() && audit == preload && !Path::new(map).exists(), "{outcome}");
    let mut later = Command::new(staged.env.join("bin/shown"));
    later.arg(&staged.env).arg("child").env("LD_AUDIT", audit).env("LD_PRELOAD", preload).env("WIREUP_STAGED", map);
    let later = later.output().expect("a program");
    let (out, err) = (String::from_utf8_lossy(&later.stdout), String::from_utf8_lossy(&later.stderr));
    assert!(out.starts_with("original ") && err.is_empty(), "{out}{err}");
}

#[test]
fn programs_start_from_their_copies_or_as_originals() {
    let staged = Staged::new();
    let at = |name: &str| staged.env.join(name).display().to_string();
    let script = format!("{} a b", at("bin/script"));
    let relative = format!("--wdir {} bin/script a", staged.env.display());
    for (words, expected) in [
        (at("bin/still"), "original\n".to_owned()),
        (script, format!("script {} a b\n", at("bin/script"))),
        (at("bin/own-script"), "copy of-script\n".to_owned()),
        (format!("{} {} child", at("bin/shown"), staged.env.display()), format!("copy {}\n", at("bin/shown"))),
        (relative, "script bin/script a\n".to_owned()),
    ] {
        let run = match words.starts_with("--wdir") {
            // A rank's working directory must not be within a mounted staged folder, so the program is named relative
            // to the folder's parent.
            true => staged.job(&format!("--wdir {} env/bin/script a", staged.folder.0.display())),
            false => staged.job(&words),
        };
        let expected = expected.replace("script bin/script", "script env/bin/script");
        let outcome = run.succeed();
        assert_eq!(outcome.out(), expected, "{words}: {outcome}");
    }
    let run = staged.job("script x").env("PATH", format!("{}:/usr/bin:/bin", at("bin")));
    assert_eq!(run.succeed().out(), format!("script {} x\n", at("bin/script")));
    staged.job(&at("bin/none")).finish().expect_code(127).expect_err_line(&["bin/none"]);
}

/// The library belongs to the wheel, in a Python environment that is staged as a whole.
#[test]
fn the_library_may_lie_in_a_staged_folder() {
    let staged = Staged::new();
    let inside = staged.env.join("lib/site/wireup");
    fs::create_dir_all(&inside).expect("a folder");
    let library = xtask::libraries::file(xtask::libraries::STAGED);
    let installed = staged.wireup.parent().expect("a folder");
    fs::rename(installed.join(&library), inside.join("libwireup-staged.so.0")).expect("the library");
    fs::rename(&staged.wireup, inside.join("wireup")).expect("the program");
    let staged = Staged { wireup: inside.join("wireup"), ..staged };
    let outcome = staged.job("").arg(staged.env.join("bin/shown")).arg(&staged.env).arg("child").finish();
    let outcome = outcome.expect_code(0);
    assert!(outcome.out().starts_with("copy "), "{outcome}");
}

/// A library was staged by its own path: only staged programs are told where its copy is.
#[test]
fn programs_that_are_not_staged_find_their_own_libraries() {
    let folder = Folder::new("staging");
    let wireup = with_libraries(&folder);
    let program = folder.write(
        "main.c",
        b"#include <stdio.h>\nint one(void);\nint main(void) { printf(\"%d\\n\", one()); return 0; }\n",
    );
    for (place, number) in [("staged", 1), ("other", 2)] {
        let source =
            folder.write(&format!("{place}/one.c"), format!("int one(void) {{ return {number}; }}\n").as_bytes());
        let library = folder.at(&format!("{place}/libone.so"));
        compile(&["-shared", "-fPIC", "-o"], &library, &source, &[]);
        let search = format!("-Wl,-rpath,{}", folder.at(place).display());
        let library = library.display().to_string();
        compile(&["-o"], &folder.at(&format!("{place}/main")), &program, &[&library, &search, "-Wl,-soname,x"]);
    }
    // One library is found through the path of the other program's folder, where no library of this name is staged.
    let other = folder.at("other/main").display().to_string();
    let script = format!("{}; {other}", folder.at("staged/main").display());
    let outcome = Run::tool("setpriv", [WITHOUT_RIGHTS])
        .arg(&wireup)
        .args("run -n 1 --virtual-nodes 2 --pmi simple --stage-library".split(' '))
        .args([&folder.stage(), "--stage-also"])
        .arg(folder.at("staged/main"))
        .args(["sh", "-c", &script])
        .cwd(Path::new("/"))
        .succeed();
    assert_eq!(outcome.out(), "1\n2\n", "{outcome}");
}
