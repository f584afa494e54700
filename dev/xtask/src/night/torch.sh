# Jobs of PyTorch on four virtual nodes, in a Debian whose PyTorch is installed first. The files are in this folder.
# `jobs` gets the version and the jobs, one a line.
set -eu

if [ ! -e /usr/lib/python3/dist-packages/torch/__init__.py ]; then
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends python3-torch python3-numpy
    apt-get clean
fi
mkdir wireup_launcher wireup_launcher-0.dist-info
mv __init__.py torch.py torchrun.py wireup_launcher
# What pip would write, so that torchrun finds its backend.
printf 'Name: wireup-launcher\nVersion: 0\n' >wireup_launcher-0.dist-info/METADATA
sed -n '/^\[project\.entry-points\./,/^$/ { s/project\.entry-points\.//; s/"//g; p }' pyproject.toml \
    >wireup_launcher-0.dist-info/entry_points.txt
export PYTHONPATH=. TORCH_CPP_LOG_LEVEL=ERROR
python3 -c 'import torch; print("PyTorch", torch.__version__)' >jobs

# Runs a job of four ranks that all say that they are right.
job() {
    echo "== $*"
    timeout 120 ./wireup run --virtual-nodes 4 "$@" >said 2>&1 || { cat said; exit 1; }
    cat said
    # Workers of one torchrun write to one pipe: two of them may end up on one line.
    [ "$(grep -o 'all right' said | wc -l)" = 4 ]
    echo "$*" >>jobs
}

# Debian's builds lack libuv, which PyTorch takes by default. It reads this variable only if a rank serves the store.
export USE_LIBUV=0
cat >no_libuv.py <<'END'
import functools, runpy, sys
import torch.distributed
rendezvous = sys.modules["torch.distributed.rendezvous"]
rendezvous.TCPStore = functools.partial(rendezvous.TCPStore, use_libuv=False)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
END
cat >fails.py <<'END'
import os, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    time.sleep(0 if os.environ["RANK"] == "2" else 60)
    raise ValueError("bad sample 17")
main()
END

job -n 4 --for torch=routable python3 torch_ddp.py
job -n 4 --for torch python3 no_libuv.py torch_ddp.py
job -n 4 --for torch python3 torch_ddp.py wireup://
job -n 4 --for torch python3 torch_store.py
job -n 4 --for torch --preload torch,torch.distributed --preload-required python3 torch_store.py
for torchrun in torchrun "python3 -m wireup_launcher.torchrun"; do
    job -n 2 --for torch $torchrun --rdzv-backend wireup --nnodes 2 --nproc-per-node 2 --max-restarts 1 torch_restart.py
done

echo "== a rank that fails"
./wireup run --virtual-nodes 4 -n 4 --for torch python3 fails.py >said 2>&1 && exit 1
cat said
grep -q '^wireup: rank 2 on node2 failed first:$' said
grep -q '^wireup:     ValueError: bad sample 17$' said
echo 'fails.py with @record' >>jobs
