//! Real programs of this machine, and small ones that are built here, compared with what the loader itself prints.

use super::need::{Need, Remark};
use super::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// A folder that is removed at the end of a test.
struct Folder {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().expect("a folder");
        Folder { path: folder.path().canonicalize().expect("it exists"), _folder: folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn folder(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).expect("a folder");
        self.path(name)
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).expect("a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).expect("its own file");
        self.path(name)
    }

    fn copy(&self, from: &str, name: &str) -> PathBuf {
        fs::copy(from, self.path(name)).expect("a copy");
        self.path(name)
    }

    fn link(&self, target: &str, name: &str) {
        symlink(target, self.path(name)).expect("a link");
    }
}

fn app(words: &[&str], cwd: &Path) -> AppSpec {
    let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    AppSpec { ranks: 1, argv, cwd: cwd.as_os_str().as_bytes().to_vec(), env: Vec::new() }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn env(variables: &[&str]) -> Vec<Vec<u8>> {
    variables.iter().map(|variable| variable.as_bytes().to_vec()).collect()
}

fn of(words: &[&str], variables: &[&str]) -> Needs {
    needs(&app(words, Path::new("/")), &env(variables), &[]).expect("no loops")
}

/// What a program needs if all files are on a network file system.
fn all_of(words: &[&str], variables: &[&str]) -> Needs {
    needs_on(&app(words, Path::new("/")), &env(variables), &[], &Rc::default(), &Digests::default(), |_| true)
        .expect("no loops")
}

fn why<'a>(needs: &'a Needs, path: &Path) -> Option<(&'a str, NeedKind)> {
    needs.needs.iter().find(|need| need.path == path).map(|need| (need.why.as_str(), need.kind))
}

fn left_out(needs: &Needs, path: &Path) -> Option<String> {
    needs.left_out.iter().find(|(own, _)| own == path).map(|(_, why)| why.to_string())
}

/// The files that the loader maps for a program, as it prints them itself.
fn traced(program: &Path, variables: &[&str]) -> Option<BTreeSet<PathBuf>> {
    let pairs = variables.iter().filter_map(|variable| variable.split_once('='));
    let output = Command::new(program).env_clear().env("LD_TRACE_LOADED_OBJECTS", "1").envs(pairs).output().ok()?;
    let lines = String::from_utf8(output.stdout).ok()?;
    let path = |line: &str| {
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        let path = Path::new(place.trim().split(" (").next()?);
        path.is_absolute().then(|| path.canonicalize().expect("the loader found it"))
    };
    Some(lines.lines().filter_map(path).collect())
}

/// Compares the libraries of a program with those that the loader prints. The loader takes only one of the copies for
/// certain processors, and does not know of plugins.
fn agrees_with_the_loader(program: &Path, variables: &[&str]) {
    let found = all_of(&[text(program)], variables);
    let is_in_folder =
        |path: &PathBuf| found.needs.iter().any(|need| need.kind == NeedKind::Folder && path.starts_with(&need.path));
    let mut loader = traced(program, variables).expect("it can be started");
    loader.retain(|path| !is_in_folder(path));
    let is_mapped = |why: &str| why.starts_with("library of ") || why.starts_with("loader of ");
    let files = found.needs.iter().filter(|need| need.kind == NeedKind::File && is_mapped(&need.why));
    let mapped: BTreeSet<String> = loader.iter().chain([&program.to_owned()]).map(|path| name_of(path)).collect();
    let is_of_plugin = |need: &&Need| {
        let by = need.why.strip_prefix("library of ");
        !loader.contains(&need.path) && by.is_some_and(|by| !mapped.contains(by))
    };
    let files: BTreeSet<PathBuf> = files.filter(|need| !is_of_plugin(need)).map(|need| need.path.clone()).collect();
    let is_variant = |path: &PathBuf| path.iter().any(|name| name == "glibc-hwcaps");
    // Where the loader took a copy for this processor, the one for all is not compared either.
    let names: BTreeSet<_> =
        loader.iter().filter(|path| is_variant(path)).filter_map(|path| path.file_name()).collect();
    let is_other = |path: &PathBuf| is_variant(path) || path.file_name().is_some_and(|name| names.contains(name));
    let own: BTreeSet<PathBuf> = files.into_iter().filter(|path| !is_other(path) || loader.contains(path)).collect();
    assert_eq!(own, loader, "{}", program.display());
}

#[test]
fn libraries_of_real_programs_are_those_that_the_loader_maps() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut programs: Vec<PathBuf> =
        ["/bin/bash", "/bin/true", "/usr/bin/ssh", "/usr/bin/python3.11", "/usr/bin/perl", "/usr/bin/gdb"]
            .iter()
            .map(PathBuf::from)
            .collect();
    for folder in ["mpich4", "mpich5", "openmpi4", "openmpi5", "intel", "oshmem", "pmix"] {
        let names = fs::read_dir(root.join("target/programs").join(folder)).into_iter().flatten().flatten();
        programs.extend(names.map(|entry| entry.path()).filter(|path| path.is_file()).take(3));
    }
    // Python reads more than its libraries, and a Python by another name does not.
    let folder = Folder::new();
    for program in programs.iter().filter(|path| path.exists()) {
        match program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python")) {
            true => agrees_with_the_loader(&folder.copy(text(program), "p"), &[]),
            false => agrees_with_the_loader(program, &[]),
        }
    }
}

/// Builds small libraries and a program with `cc`.
struct Builder<'a>(&'a Folder);

impl Builder<'_> {
    fn is_here() -> bool {
        let is_here = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_here {
            println!("not run: there is no cc");
        }
        is_here
    }

    fn cc(&self, source: &str, output: &str, flags: &[&str]) {
        let file = self.0.path("source.c");
        fs::write(&file, source).expect("a file");
        let mut command = Command::new("cc");
        command.current_dir(&self.0.path).arg(&file).arg("-o").arg(self.0.path(output)).args(flags);
        assert!(command.status().expect("cc starts").success(), "{output} {flags:?}");
    }

    /// Builds `lib<name>.so` in a folder; `flags` link it to the libraries that it needs.
    fn library(&self, folder: &str, name: &str, flags: &[&str]) {
        self.0.folder(folder);
        let soname = format!("-Wl,-soname,lib{name}.so");
        let flags =
            [&["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", &soname], flags].concat();
        self.cc("int x;", &format!("{folder}/lib{name}.so"), &flags);
    }

    fn program(&self, name: &str, flags: &[&str]) -> PathBuf {
        let flags = [&["-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all"], flags].concat();
        self.cc("int main(void) { return 0; }", name, &flags);
        self.0.path(name)
    }
}

const OLD: &str = "-Wl,--disable-new-dtags";
const NEW: &str = "-Wl,--enable-new-dtags";

#[test]
fn paths_in_objects_are_searched_as_by_the_loader() {
    if !Builder::is_here() {
        return;
    }
    let folder = Folder::new();
    let build = Builder(&folder);
    build.library("deep", "d", &[]);
    build.library("c", "c", &["-Ldeep", "-ld"]);
    // The RUNPATH of `libb.so` hides RPATHs for the libraries that it needs itself; what `libc.so` needs is still
    // looked for in the RPATH of the program.
    build.library("b", "b", &["-Lc", "-lc", "-Lc", "-l:libc.so", NEW, "-Wl,-rpath,$ORIGIN/../c"]);
    let old = build.program("old", &["-Lb", "-lb", OLD, "-Wl,-rpath,$ORIGIN/b:${ORIGIN}/deep"]);
    agrees_with_the_loader(&old, &[]);
    let found = of(&[text(&old)], &[]);
    assert_eq!(why(&found, &old), Some(("the program", NeedKind::File)));
    assert_eq!(why(&found, &folder.path("b/libb.so")), Some(("library of old", NeedKind::File)));
    assert_eq!(why(&found, &folder.path("deep/libd.so")), Some(("library of libc.so", NeedKind::File)));
    // A RUNPATH applies only to what the object itself needs: the loader does not find `libd.so`.
    let new = build.program("new", &["-Lb", "-lb", NEW, "-Wl,-rpath,$ORIGIN/b:$ORIGIN/deep"]);
    agrees_with_the_loader(&new, &[]);
    let lack = Remark {
        text: "libd.so, which libc.so needs, was not found; install it, or name its folder in LD_LIBRARY_PATH".into(),
        is_lack: true,
    };
    assert_eq!(of(&[text(&new)], &[]).remarks, [lack]);
    let variable = format!("LD_LIBRARY_PATH=/none:{}", folder.path("deep").display());
    agrees_with_the_loader(&new, &[&variable]);
    assert_eq!(of(&[text(&new)], &[&variable]).remarks, []);
}

#[test]
fn preloaded_libraries_and_copies_for_processors_are_found() {
    if !Builder::is_here() {
        return;
    }
    let folder = Folder::new();
    let build = Builder(&folder);
    build.library("p", "p", &[]);
    build.library("v", "v", &[]);
    build.library("v/glibc-hwcaps/x86-64-v2", "v", &[]);
    build.library("v/glibc-hwcaps/x86-64-v4", "v", &[]);
    let preload = format!("LD_PRELOAD={}", folder.path("p/libp.so").display());
    let path = build.program("a", &["-Lv", "-lv", "-Wl,-rpath,$ORIGIN/v"]);
    agrees_with_the_loader(&path, &[&preload]);
    let found = of(&[text(&path)], &[&preload]);
    for name in ["p/libp.so", "v/libv.so", "v/glibc-hwcaps/x86-64-v2/libv.so", "v/glibc-hwcaps/x86-64-v4/libv.so"] {
        assert_eq!(why(&found, &folder.path(name)), Some(("library of a", NeedKind::File)), "{name}");
    }
}

#[test]
fn links_on_the_way_are_needs_of_their_own() {
    let folder = Folder::new();
    folder.folder("app-1.2/bin");
    let real = folder.copy("/bin/true", "app-1.2/bin/x");
    folder.link("app-1.2", "app");
    folder.link("x", "app-1.2/bin/y");
    let typed = folder.path("app/bin/y");
    let found = of(&[text(&typed)], &[]);
    let link = format!("symbolic link on the way to {}", typed.display());
    assert_eq!(why(&found, &folder.path("app")), Some((link.as_str(), NeedKind::Link)));
    assert_eq!(why(&found, &folder.path("app-1.2/bin/y")), Some((link.as_str(), NeedKind::Link)));
    assert_eq!(why(&found, &real), Some(("the program", NeedKind::File)));
    assert_eq!(found.needs.len(), 3, "the libraries are the system's: {found:?}");
    assert!(found.left_out.iter().any(|(path, _)| path.ends_with("libc.so.6")), "{found:?}");
    assert!(found.needs.is_sorted_by(|one, next| one.path < next.path));
    folder.link("loop", "loop");
    let looped = folder.path("loop");
    assert_eq!(needs(&app(&[text(&looped)], Path::new("/")), &[], &[]), Err(Error::Links(looped)));
}

#[test]
fn system_files_are_staged_only_from_the_network() {
    let local = of(&["/bin/true"], &[]);
    assert_eq!(local.needs, []);
    let network = all_of(&["/bin/true"], &[]);
    assert!(
        network.left_out.is_empty() && network.needs.iter().any(|need| need.why == "loader of true"),
        "{network:?}"
    );
}

#[test]
fn a_file_system_is_examined_once_for_each_path() {
    let asked = RefCell::new(Vec::new());
    let is_network = |path: &Path| {
        asked.borrow_mut().push(path.to_owned());
        true
    };
    let bash = app(&["/bin/bash"], Path::new("/"));
    needs_on(&bash, &[], &[], &Rc::default(), &Digests::default(), is_network).expect("no loops");
    let asked = asked.into_inner();
    let different: BTreeSet<&PathBuf> = asked.iter().collect();
    assert!(different.len() == asked.len() && asked.len() > 1, "{asked:?}");
}

#[test]
fn programs_with_rights_of_their_own_are_refused() {
    let folder = Folder::new();
    for (mode, rights) in [(0o4755, "set-user-ID"), (0o2755, "set-group-ID")] {
        let path = folder.copy("/bin/true", "x");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its own file");
        let found = of(&[text(&path)], &[]);
        assert!(found.left_out.contains(&(path.clone(), LeftOut::Rights(rights))), "{found:?}");
        assert_eq!(found.needs, []);
    }
    assert_eq!(left_out(&of(&["/no/such"], &[]), Path::new("/no/such")).as_deref(), Some("not found"));
    assert_eq!(left_out(&of(&["none"], &[]), Path::new("none")).as_deref(), Some("not found"));
}

#[test]
fn interpreters_of_scripts_are_followed() {
    let folder = Folder::new();
    let shell = folder.copy("/bin/sh", "shell");
    let inner = folder.program("inner", &format!("#!{} -e\n", shell.display()));
    let outer = folder.program("outer", &format!("#!{}\n", inner.display()));
    let found = of(&[text(&outer)], &[]);
    assert_eq!(why(&found, &outer), Some(("the program", NeedKind::File)));
    assert_eq!(why(&found, &inner), Some(("interpreter of outer", NeedKind::File)));
    assert_eq!(why(&found, &shell), Some(("interpreter of inner", NeedKind::File)));
    let by_env = folder.program("by_env", "#!/usr/bin/env -S A=b shell -e\n");
    let path = format!("PATH={}", folder.path.display());
    let found = of(&["by_env"], &[&path]);
    assert_eq!(why(&found, &by_env), Some(("the program", NeedKind::File)));
    assert_eq!(why(&found, &shell), Some(("interpreter of by_env", NeedKind::File)));
    let own = folder.program("own", &format!("#!{}\n", folder.path("own").display()));
    assert_eq!(of(&[text(&own)], &[]).remarks.len(), 1, "a script that is its own interpreter");
}

#[test]
fn files_that_the_user_names_are_staged() {
    let folder = Folder::new();
    let program = folder.copy("/bin/true", "x");
    for name in ["data.1", "data.2", "more/deep"] {
        folder.folder("more");
        fs::write(folder.path(name), "").expect("a file");
    }
    let with = |also: &[&str]| {
        let also: Vec<PathBuf> = also.iter().map(PathBuf::from).collect();
        needs(&app(&[text(&program)], &folder.path), &[], &also)
    };
    let found = with(&["data.*", "more"]).expect("all are there");
    let named = |kind| Some(("named by --stage-also", kind));
    assert_eq!(why(&found, &folder.path("data.1")), named(NeedKind::File));
    assert_eq!(why(&found, &folder.path("data.2")), named(NeedKind::File));
    assert_eq!(why(&found, &folder.path("more")), named(NeedKind::Folder));
    assert_eq!(found.needs.len(), 4, "{found:?}");
    assert_eq!(with(&["none.*"]), Err(Error::NoMatch("none.*".to_owned())));
    let missing = with(&["none"]).expect_err("no such file");
    assert_eq!(missing.to_string(), "none: there is no such file");
    assert_eq!(missing.with_flag("--stage-also"), "--stage-also none: there is no such file");
    assert!(matches!(with(&["a[b"]), Err(Error::Pattern { .. })));
    if Builder::is_here() {
        let build = Builder(&folder);
        build.library("libs", "below", &[]);
        build.library("plugins", "plugin", &["-Llibs", "-lbelow", "-Wl,-rpath,$ORIGIN/../libs"]);
        for pattern in ["plugins", "plugins/*.so"] {
            let found = with(&[pattern]).expect("it is there");
            assert_eq!(
                why(&found, &folder.path("libs/libbelow.so")),
                Some(("library of libplugin.so", NeedKind::File))
            );
        }
    }
}

/// A virtual environment of the Python of this machine, if it can be made.
fn environment(folder: &Folder) -> Option<PathBuf> {
    let place = folder.path("env-1");
    let made = Command::new("/usr/bin/python3").args(["-m", "venv", "--without-pip"]).arg(&place).output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("not run: /usr/bin/python3 -m venv does not work here");
        return None;
    }
    folder.link("env-1", "env");
    Some(place)
}

#[test]
fn a_virtual_environment_is_staged_as_a_whole() {
    let folder = Folder::new();
    let Some(place) = environment(&folder) else { return };
    let python = folder.path("env/bin/python");
    let work = folder.folder("work");
    let modules = folder.folder("modules");
    let script = folder.program("work/run.py", &format!("#!{}\n", python.display()));
    let variable = format!("PYTHONPATH={}:{}", modules.display(), work.display());
    for words in [&[text(&python), "-u", "run.py"][..], &[text(&script)]] {
        let found = needs(&app(words, &work), &env(&[&variable]), &[]).expect("no loops");
        assert_eq!(why(&found, &place), Some(("the Python environment", NeedKind::Folder)), "{found:?}");
        assert!(why(&found, &folder.path("env")).is_some_and(|(_, kind)| kind == NeedKind::Link));
        assert_eq!(why(&found, &modules), Some(("in PYTHONPATH", NeedKind::Folder)));
        assert!(why(&found, &script).is_some_and(|(_, kind)| kind == NeedKind::File));
        assert!(!found.needs.iter().any(|need| need.path.starts_with(&place) && need.path != place));
        assert!(left_out(&found, &work).is_some_and(|why| why.starts_with("ranks start in it")));
        assert!(found.left_out.iter().any(|(path, _)| path.starts_with("/usr/lib/") && path.is_dir()), "{found:?}");
    }
    let inside = needs(&app(&[text(&python)], &place), &[], &[]).expect("no loops");
    assert_eq!(why(&inside, &place), None, "ranks would write into it");
    assert_eq!(why(&inside, &place.join("lib")), Some(("the Python environment", NeedKind::Folder)));
    assert_eq!(why(&inside, &place.join("pyvenv.cfg")), Some(("the Python environment", NeedKind::File)));
}

#[test]
fn a_python_outside_of_the_system_is_staged_with_its_library_folder() {
    let folder = Folder::new();
    folder.folder("py/bin");
    let lib = folder.folder("py/lib/python3.11");
    fs::write(lib.join("os.py"), "").expect("a file");
    let program = folder.copy("/bin/true", "py/bin/python3.11");
    folder.link("python3.11", "py/bin/python3");
    let packages = folder.folder("home/.local/lib/python3.11/site-packages");
    let home = format!("HOME={}", folder.path("home").display());
    let found = of(&[text(&folder.path("py/bin/python3"))], &[&home]);
    assert_eq!(why(&found, &lib), Some(("the Python environment", NeedKind::Folder)));
    assert_eq!(why(&found, &packages), Some(("Python packages of the user", NeedKind::Folder)));
    assert_eq!(why(&found, &program), Some(("the program", NeedKind::File)));
    assert_eq!(found.needs.len(), 4, "{found:?}");
    folder.folder("py/conda-meta");
    let found = of(&[text(&program)], &[]);
    assert_eq!(why(&found, &folder.path("py")), Some(("the Python environment", NeedKind::Folder)));
    assert_eq!(found.needs.len(), 1, "{found:?}");
}

#[test]
fn what_extension_modules_need_from_outside_is_staged() {
    if !Builder::is_here() {
        return;
    }
    let folder = Folder::new();
    let build = Builder(&folder);
    folder.folder("py/bin");
    let lib = folder.folder("py/lib/python3.11");
    fs::write(lib.join("os.py"), "").expect("a file");
    let program = folder.copy("/bin/true", "py/bin/python3.11");
    build.library("mpi", "mpi", &[]);
    build.library("py/lib/python3.11", "module", &["-Lmpi", "-lmpi", "-Wl,-rpath,$ORIGIN/../../../mpi"]);
    folder.copy(text(&folder.path("mpi/libmpi.so")), "elsewhere.so");
    folder.link("../../../elsewhere.so", "py/lib/python3.11/linked.so");
    let found = of(&[text(&program)], &[]);
    assert_eq!(why(&found, &folder.path("mpi/libmpi.so")), Some(("library of libmodule.so", NeedKind::File)));
    let leads = format!("a link in {} leads to it", lib.display());
    assert_eq!(why(&found, &folder.path("elsewhere.so")), Some((leads.as_str(), NeedKind::File)));
}

#[test]
fn the_systems_folders_are_recognized() {
    let system = |path: &str| is_system(Path::new(path));
    assert!(system("/usr/bin/env") && system("/lib64/x") && system("/lib") && system("/etc/ld.so.cache"));
    assert!(!system("/usr/local/bin/x") && !system("/opt/usr/x") && !system("/library/x") && !system("/"));
}
