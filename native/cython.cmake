# One extension module stf_places._native.NAME for each cython/NAME.pyx, linked to the shared library.
find_program(STF_CYTHON_EXECUTABLE NAMES cython HINTS "${Python_ROOT_DIR}/bin")
set(STF_CYTHON_TREE "${CMAKE_CURRENT_BINARY_DIR}/cython")
# The modules are copied with the docstrings of their stubs put in; declarations are linked beside them.
set(STF_CYTHON_PACKAGE "${STF_CYTHON_TREE}/stf_places/_native")
if(IS_SYMLINK "${STF_CYTHON_PACKAGE}")
  file(REMOVE "${STF_CYTHON_PACKAGE}")
endif()
file(MAKE_DIRECTORY "${STF_CYTHON_PACKAGE}")
file(WRITE "${STF_CYTHON_TREE}/stf_places/__init__.py" "")
file(GLOB STF_DECLARATIONS CONFIGURE_DEPENDS cython/*.pxd cython/*.pxi)
foreach(declaration ${STF_DECLARATIONS} "${CMAKE_CURRENT_SOURCE_DIR}/cython/__init__.py")
  get_filename_component(name "${declaration}" NAME)
  file(CREATE_LINK "${declaration}" "${STF_CYTHON_PACKAGE}/${name}" SYMBOLIC)
endforeach()

function(stf_add_cython_module source)
  get_filename_component(name "${source}" NAME_WE)
  set(generated "${STF_CYTHON_TREE}/${name}.cpp")
  set(stub "${CMAKE_CURRENT_SOURCE_DIR}/cython/${name}.pyi")
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/docstrings.py")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND "${Python_EXECUTABLE}" "${script}" "${source}" "${stub}" "${STF_CYTHON_PACKAGE}/${name}.pyx"
    COMMAND "${Python_EXECUTABLE}" -m cython -3 --cplus --fast-fail
            -X freethreading_compatible=False
            -o "${generated}" "stf_places/_native/${name}.pyx"
    WORKING_DIRECTORY "${STF_CYTHON_TREE}"
    DEPENDS "${source}" "${stub}" "${script}" ${STF_DECLARATIONS}
    COMMENT "cython ${name}.pyx")
  Python_add_library(${name} MODULE "${generated}" WITH_SOABI)
  target_link_libraries(${name} PRIVATE stf_places)
  target_compile_options(${name} PRIVATE -O2 -fno-strict-aliasing -w)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${name} LIBRARY DESTINATION stf_places/_native)
endfunction()

install(DIRECTORY cython/ DESTINATION stf_places/_native FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "*.pxd")
