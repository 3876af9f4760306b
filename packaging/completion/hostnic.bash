# SPDX-License-Identifier: BSD-3-Clause
# Completion of hostnic and hostnicd for bash. Options and commands are compared with the programs'
# own by tests/tools/packaging.py.

# The NICs of the hostnicd that hostnic would speak to.
_hostnic_devices() {
  "${1:-hostnic}" devices 2>/dev/null | cut -d' ' -f1
}

# Completes the values of options that both programs have; fails where the option takes none.
_hostnic_value() {
  case $prev in
    --nics) COMPREPLY=($(compgen -W "{1..16}" -- "$cur")) ;;
    --mtu) COMPREPLY=($(compgen -W "256 512 1024 2048 4096" -- "$cur")) ;;
    --idle) COMPREPLY=($(compgen -W "adaptive poll" -- "$cur")) ;;
    --segmentation) COMPREPLY=($(compgen -W "auto off" -- "$cur")) ;;
    --port) COMPREPLY=($(compgen -W "udp af_packet wire" -- "$cur")) ;;
    --lid) COMPREPLY=($(compgen -W "none from-address" -- "$cur")) ;;
    --like)
      COMPREPLY=($(compgen -W "$("${words[0]/%hostnicd/hostnic}" like 2>/dev/null | cut -d' ' -f1)" -- "$cur"))
      _filedir toml
      ;;
    --seed) COMPREPLY=($(compgen -W "random" -- "$cur")) ;;
    --socket-mode) COMPREPLY=($(compgen -W "0600 0660 0666" -- "$cur")) ;;
    --socket-group) COMPREPLY=($(compgen -g -- "$cur")) ;;
    --config) _filedir toml ;;
    --commands | --socket | --rules | --suppress) _filedir ;;
    --json)
      # Only that of check has a value.
      [[ ${words[1]} == check ]] || return 1
      _filedir json
      ;;
    --exit-code) ;;
    -w | --write | --capture) _filedir pcapng ;;
    -o | --output | --report) _filedir html ;;
    --summary)
      # That of trace has no value.
      [[ ${words[1]} == lab ]] || return 1
      _filedir '@(xml|json)'
      ;;
    --lab | --sysfs | --trace-points) _filedir -d ;;
    --nic)
      compopt -o nospace
      COMPREPLY=($(compgen -W "ip= port=" -- "$cur"))
      ;;
    --device) COMPREPLY=($(compgen -W "$(_hostnic_devices "${words[0]}")" -- "$cur")) ;;
    --hosts | --vendor-err | --fault | --rule | --seeds | --require-rdma | --addresses | --view | --loss | --impair | --switch | --paths | --planes | --timescale | --lcores | --idle-us | --ready-fd) ;;
    --gpu) COMPREPLY=($(compgen -W "1 2 1,loads 2,loads 1,nopeer" -- "$cur")) ;;
    --ordering) COMPREPLY=($(compgen -W "tail relaxed strict adversarial" -- "$cur")) ;;
    --policy) COMPREPLY=($(compgen -W "all selective go-back-n whole-message roce-hold roce" -- "$cur")) ;;
    --op) COMPREPLY=($(compgen -W "write send read" -- "$cur")) ;;
    --study)
      COMPREPLY=($(compgen -W "recovery single stream qps64 incast64 reorder single-reads reads" -- "$cur"))
      ;;
    --reorder | --distance | --message | --rate | --delay | --window | --qps | --depth | --messages | --points | --jobs) ;;
    -c | --count | --seconds | --snaplen | --last | --buffer) ;;
    *) return 1 ;;
  esac
  return 0
}

# Completes a command of hostnicd, whose words begin at $1.
_hostnic_command() {
  local given=("${words[@]:$1:cword-$1}") device
  device=$(_hostnic_devices "${words[0]}")
  local choices=""
  case "${given[*]}" in
    "") choices="show explain probe mrc set trace clear start stop help quit" ;;
    show) choices="nic qp peers client cm counters impair switch mrc dead errors metrics" ;;
    "show nic" | "show qp" | "show peers" | "show impair" | "show switch" | "show mrc" | "clear counters") choices=$device ;;
    "show counters"*) choices="$device all help" ;;
    "show metrics") choices="prometheus" ;;
    mrc) choices="probe" ;;
    "mrc probe" | "set mrc") choices=$device ;;
    "set mrc "*) choices="port value up down good denied" ;;
    set) choices="impair mrc" ;;
    "set impair") choices="$device all" ;;
    "set impair "*)
      case ${#given[@]} in
        3) choices="rx tx" ;;
        4) choices="none drop duplicate corrupt mark reorder delay rate blackhole" ;;
      esac
      ;;
    clear) choices="counters" ;;
    trace) choices="points" ;;
    "trace points") choices="on off save" ;;
  esac
  COMPREPLY=($(compgen -W "$choices" -- "$cur"))
}

_hostnic() {
  local cur prev words cword split
  _init_completion -n = || return
  local i subcommand="" subcommand_at=0
  for ((i = 1; i < cword; i++)); do
    case ${words[i]} in
      lab | run | on | ctl | capture | report | explain | doctor | top | trace | fault | check | simulate | metrics | mrc | errors | devices | like | libdir)
        subcommand=${words[i]}
        subcommand_at=$i
        break
        ;;
    esac
  done
  for ((i = subcommand_at + 1; i < cword; i++)); do
    if [[ -n $subcommand && ${words[i]} == -- ]]; then
      _command_offset $((i + 1))
      return
    fi
  done
  _hostnic_value && return
  local options="-h --help"
  case $subcommand in
    "")
      COMPREPLY=($(compgen -W "lab run on ctl capture report explain doctor top trace fault check simulate metrics mrc errors devices like libdir -h --help --version" -- "$cur"))
      return
      ;;
    lab)
      options+=" --nics --mtu --loss --impair --switch --mrc --planes --paths --seed --ordering --timescale --config --nic --idle --segmentation --lid --like"
      options+=" --hosts --port --addresses --lcores --socket-mode --socket-group --commands --keep-log -q --quiet -v --verbose"
      options+=" --capture --report --trace-points --summary --fault --check --seeds --require-rdma --gpu --"
      ;;
    run) options+=" --socket --device --how --fault --require-rdma --gpu --" ;;
    fault) options+=" --rule --rules --device --seed --seeds --api --list --" ;;
    check) options+=" --json --suppress --exit-code --strict --full --list --" ;;
    on)
      options+=" --lab --"
      [[ $cur != -* ]] && COMPREPLY=($(compgen -W "${HOSTNIC_HOSTS//,/ }" -- "$cur")) && return
      ;;
    explain) options+=" --socket --vendor-err" ;;
    doctor) options+=" --socket --to --" ;;
    mrc)
      options+=" --socket --json"
      [[ $cur != -* ]] && COMPREPLY=($(compgen -W "port value probe up down good denied $(_hostnic_devices "${words[0]}")" -- "$cur")) && return
      ;;
    ctl | errors) options+=" --socket --json" ;;
    top) options+=" --socket --once -c --count" ;;
    trace) options+=" -o --output --summary --" ;;
    simulate)
      options+=" --policy --op --loss --reorder --distance --impair --message --mtu --rate --delay --window --qps"
      options+=" --incast --depth --messages --points --seed --study --csv --svg -o --output --jobs"
      ;;
    metrics) options+=" --socket --prometheus" ;;
    report)
      options+=" -o --output --json --trace-points"
      [[ $cur != -* ]] && _filedir pcapng && return
      ;;
    devices) options+=" --socket" ;;
    like)
      if [[ $cur != -* ]]; then
        COMPREPLY=($(compgen -W "$("${words[0]}" like 2>/dev/null | cut -d' ' -f1)" -- "$cur"))
        _filedir toml
        return
      fi
      ;;
    capture)
      options+=" --socket -w --write -c --count --seconds --snaplen --last --dump --buffer"
      [[ $cur != -* ]] && COMPREPLY=($(compgen -W "all qp peer opcode verdict $(_hostnic_devices "${words[0]}")" -- "$cur")) && return
      ;;
  esac
  if [[ $subcommand == ctl && $cur != -* ]]; then
    local first=$((subcommand_at + 1))
    [[ ${words[first]} == --socket ]] && ((first += 2))
    _hostnic_command "$first"
    return
  fi
  COMPREPLY=($(compgen -W "$options" -- "$cur"))
} && complete -F _hostnic hostnic

_hostnicd() {
  local cur prev words cword split
  _init_completion -n = || return
  _hostnic_value && return
  local options="-h --help --version --config --nics --nic --socket --socket-mode --socket-group"
  options+=" --mtu --impair --loss --switch --mrc --planes --paths --seed --ordering --timescale --idle --segmentation --lid --like --idle-us --lcores"
  options+=" --addresses --sysfs --view --commands --ready-fd --no-prompt --"
  COMPREPLY=($(compgen -W "$options" -- "$cur"))
} && complete -F _hostnicd hostnicd
