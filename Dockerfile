# `make image` builds it for CPUs, `make image-gpu` for CUDA GPUs. A run's directory
# is kept by a mount, of a folder that is made first, else root owns it:
#   mkdir -p runs && docker run --rm --user "$(id -u)" -v "$PWD/runs:/tff_xc/runs" tff_xc \
#     launch.train --task=glyphs-demo --algorithm=fedss --run_dir=runs/demo
# and a GPU is seen with `--gpus all`: CUDA's libraries are in the image, the driver
# is the machine's.
FROM python:3.11-bookworm

WORKDIR /tff_xc
# Apart from the rest, so that another line of code does not install anew.
COPY Makefile requirements.txt requirements-gpu.txt ./
COPY tools/setup_venv.sh tools/
ARG VENV=venv
RUN make "$VENV" && rm -rf ~/.cache

COPY . .
# Any user may write there, and where packages keep their caches.
RUN mkdir -p -m 1777 runs
ENV HOME=/tmp PATH=/tff_xc/.venv/bin:$PATH
USER 1000
ENTRYPOINT ["python", "-m"]
CMD ["launch"]
