# Manual pages and the changelog are compressed, as Debian's policy (chapter 12) wants them.
file(GLOB_RECURSE plain ${CPACK_TEMPORARY_DIRECTORY}/usr/share/man/*.[1-8]
     ${CPACK_TEMPORARY_DIRECTORY}/usr/share/doc/ithaca/changelog)
if(plain)
  execute_process(COMMAND gzip -9n ${plain} COMMAND_ERROR_IS_FATAL ANY)
endif()
