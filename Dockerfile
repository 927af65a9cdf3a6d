# `make image` builds an image for CPUs, and `make image-gpu` an image for CUDA GPUs. Mount a
# folder to keep a run's directory. Create the folder first, because Docker would create it
# as root:
#   mkdir -p runs && docker run --rm --user "$(id -u)" -v "$PWD/runs:/tff_xc/runs" tff_xc \
#     launch.train --task=glyphs-demo --algorithm=fedss --run_dir=runs/demo
# `docker run --gpus all` gives the container GPUs. The image has CUDA's libraries, and uses
# the driver of the machine.
FROM python:3.11-bookworm

WORKDIR /tff_xc
# Copy these files before the code, so that Docker does not install the packages again after
# a change of the code.
COPY Makefile requirements.txt requirements-gpu.txt ./
COPY tools/setup_venv.sh tools/
ARG VENV=venv
RUN make "$VENV" && rm -rf ~/.cache

COPY . .
# Any user may write to runs/ and to $HOME, where packages store their caches.
RUN mkdir -p -m 1777 runs
ENV HOME=/tmp PATH=/tff_xc/.venv/bin:$PATH
USER 1000
ENTRYPOINT ["python", "-m"]
CMD ["launch"]
